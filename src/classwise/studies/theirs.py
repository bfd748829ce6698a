"""Networks of other people in files, as a user names them to stand beside the runs of a study.

A file gives tensors, or an ONNX graph, and nothing of it is executed; what it is built into is the
user's own word, as with `classwise audit FILE --arch SPEC`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from classwise.errors import ClasswiseError, cut, unknown
from classwise.models.code_files import code_in
from classwise.models.onnx_file import is_onnx
from classwise.models.preparation import Normalisation
from classwise.record.opening import Opening, open_model
from classwise.record.state_dict import file_and_key
from classwise.spelling import parse_value, split_outside_brackets

THEIRS = "theirs.json"  # in a folder of audits: whose network it is, and what it was opened as
NOT_OURS = "not trained here"
OPTIONS = ("arch", "normalise", "rename", "limit")
_HOW = "write --beside 'NAME=FILE, arch=resnet18, normalise=cifar10'"


@dataclass(frozen=True)
class Network:
    """A network of somebody's: its name in tables, its file, and how that is opened."""

    name: str
    path: Path  # absolute: other processes open it, too
    which: str = ""  # of several sets of weights in the file, as in FILE@KEY
    arch: str | None = None
    normalise: Any = None
    rename: tuple[str, ...] = ()  # OLD=NEW
    limit: int = 0  # at most so many images, balanced; 0 is all

    @classmethod
    def read(cls, words: str) -> Network:
        """Read `NAME=FILE, arch=SPEC, normalise=none, rename=OLD=NEW, limit=1000`."""
        first, *rest = split_outside_brackets(words, ",")
        name, equals, file = (_bare(part) for part in first.partition("="))
        if not (name and equals and file):
            raise ClasswiseError(
                f"--beside {cut(words)}: it has no NAME=FILE to begin with; {_HOW}"
            )
        path, which = file_and_key(file)
        if not path.is_file():
            raise ClasswiseError(f"--beside {name}: there is no file {file}")
        options: dict[str, list[str]] = {}
        for part in rest:
            option, _, value = (_bare(one) for one in part.partition("="))
            if option not in OPTIONS:
                raise unknown(f"option of --beside {name}", option, OPTIONS)
            options.setdefault(option, []).append(value)
        for option, values in options.items():
            if not all(values) or (len(values) > 1 and option != "rename"):
                raise ClasswiseError(
                    f"--beside {name}: {option} is given {len(values)} times with "
                    f"{', '.join(map(repr, values))}; give it one value"
                )
        return cls(
            name,
            path.absolute(),
            which,
            arch=options.get("arch", [None])[0],
            normalise=_normalise(name, options),
            rename=tuple(options.get("rename", ())),
            limit=_limit(name, options.get("limit", ["0"])[0]),
        )

    @property
    def target(self) -> str:
        """The file as an audit is told it."""
        return f"{self.path}@{self.which}" if self.which else str(self.path)

    @property
    def opening(self) -> Opening:
        """How its file is opened."""
        return Opening.of(self.arch, list(self.rename), None)

    @property
    def sha256(self) -> str:
        """Of the file: what others can compare theirs with."""
        try:
            with self.path.open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as reason:
            raise ClasswiseError(f"cannot read {self.path}: {reason.strerror}") from None

    def check(self, num_classes: int, channels: int) -> str:
        """Open it once before anything runs; return how its images are normalised, in words."""
        if code_in(self.path):
            raise ClasswiseError(
                f"--beside {self.name}: {self.path.name} is code, which no study runs; give a file "
                "of tensors with arch=SPEC, or an .onnx file"
            )
        said = "" if self.normalise is None else f"normalised by {Normalisation.of(self.normalise)}"
        if is_onnx(str(self.path)):
            return said or "normalised inside it, if at all"
        try:
            how = Opening(self.arch, self.opening.rename, self.normalise)
            opened = open_model(self.target, how, num_classes, channels)
        except ClasswiseError as reason:
            raise ClasswiseError(f"--beside {self.name}: {reason}") from None
        _, _, words = opened.words.partition(f"{self.path}: ")
        return "; ".join(one for one in (said, words) if one) or "normalised inside it, if at all"

    def about(self, sha256: str, data: str, normalised: str) -> dict[str, Any]:
        """What is kept beside its audits: enough to know the file again, and no path."""
        return {
            "name": self.name,
            "file": self.path.name,
            "which": self.which,
            "sha256": sha256,
            "arch": self.arch or "",
            "rename": list(self.rename),
            "normalise": self.normalise,
            "normalised": normalised,
            "data": data,
        }


def network_key(about: Mapping[str, Any]) -> str:
    """What a network on some data is known by: its content and how it was opened, not its name."""
    facts = [about[name] for name in ("sha256", "which", "arch", "rename", "normalise", "data")]
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=8).hexdigest()


def _bare(words: str) -> str:
    """A part without spaces and quotes around it."""
    words = words.strip()
    quoted = len(words) > 1 and words[0] == words[-1] and words[0] in "'\""
    return words[1:-1] if quoted else words


def _normalise(name: str, options: Mapping[str, list[str]]) -> Any:
    """A name, or [[means], [deviations]]; refused here if it is neither."""
    if "normalise" not in options:
        return None
    words = options["normalise"][0]
    value = parse_value(words) if words.startswith(("[", "(")) else words  # none is a word here
    try:
        Normalisation.of(value)
    except ClasswiseError as reason:
        raise ClasswiseError(f"--beside {name}: {reason}") from None
    return value


def _limit(name: str, words: str) -> int:
    if not words.isdecimal() or len(words) > 9:
        raise ClasswiseError(f"--beside {name}: limit={cut(words)}; give a number of images")
    return int(words)
