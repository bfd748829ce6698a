"""The folder of a run: who it is, how it went, and the weights it kept.

run.json             recipe, configuration, identity, versions
history.jsonl        one line per epoch, per-class vectors; append-only
times.jsonl          seconds per epoch, apart because they differ from run to run
state.safetensors    all that a resume needs
weights/*.safetensors  last, best, every Nth epoch if wanted, and the same for every average
predictions/*.parquet  written by audits
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from classwise.errors import ClasswiseError, unknown
from classwise.files import write_atomically
from classwise.models.card import model_of_card, read_card
from classwise.record.tensors import read_tensors


@dataclass(frozen=True)
class RunFolder:
    """What training and audits write, and what can be read of it without knowing how to train."""

    path: Path
    own_model: str | None = None  # `module:callable` as the user named it, never as the folder does

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))  # text will do, too

    def claim(self, about: Mapping[str, Any]) -> None:
        """Take an empty folder, or step into the same run again; another one is refused."""
        if self._card.exists():
            if self.about.get("identity") != about["identity"]:
                changed = self.about.get("sources") != about.get("sources")
                reason = ", and the code of its methods differs" * changed
                raise ClasswiseError(
                    f"{self.path} holds another run ({self.about['recipe_name']}, identity "
                    f"{self.about.get('identity')}, not {about['identity']}{reason}); choose "
                    "another folder"
                )
            return
        for folder in (self.path, *self.path.parents):
            if folder.exists() and not folder.is_dir():
                raise ClasswiseError(
                    f"{self.path} cannot be a run folder: {folder} is a file; choose another folder"
                )
        # A write cut short by a kill leaves a .part file, which is nobody's property.
        if self.path.exists() and any(p.suffix != ".part" for p in self.path.iterdir()):
            raise ClasswiseError(f"{self.path} exists and is no run of ours; choose another folder")
        write_atomically(self._card, (json.dumps(about, indent=1) + "\n").encode())

    @property
    def _card(self) -> Path:
        return self.path / "run.json"

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    @cached_property
    def about(self) -> dict[str, Any]:
        """What run.json says."""
        try:
            found: dict[str, Any] = json.loads(self._card.read_text())
        except FileNotFoundError:
            raise ClasswiseError(f"{self.path} is not a run: it has no run.json") from None
        except (OSError, ValueError) as reason:
            raise ClasswiseError(f"{self._card} cannot be read: {reason}") from None
        if not isinstance(found, dict) or "data" not in found:
            raise ClasswiseError(f"{self._card} does not describe a run")
        return found

    @property
    def begun(self) -> bool:
        """Whether there is anything of it on disk."""
        return self._card.exists()

    @property
    def history(self) -> list[dict[str, Any]]:
        """One record per finished epoch; a line torn by a crash is passed over."""
        return read_lines(self.path / "history.jsonl")

    @property
    def weights(self) -> list[str]:
        """Names of the weights it kept: `last`, `best`, `ema-last` and so on."""
        return sorted(path.stem for path in (self.path / "weights").glob("*.safetensors"))

    def weights_path(self, name: str) -> Path:
        """Where the weights of that name are."""
        return self.path / "weights" / f"{name}.safetensors"

    def model(self, weights: str = "last", spec: str | None = None) -> nn.Module:
        """Build the model with the weights of that name, in eval mode.

        A run of a model of your own is opened by naming it again, `spec="module:callable"`: what a
        folder says is never imported.
        """
        if weights not in self.weights:
            raise unknown(f"weights in {self.path}", weights, self.weights or ["none yet"])
        return load_model(self.weights_path(weights), spec or self.own_model)[0]


def load_model(path: Path, spec: str | None = None) -> tuple[nn.Module, dict[str, Any]]:
    """Build the model that a weights file describes, in eval mode, and return its description.

    `spec` is the user's own `module:callable`, where the file was made with one.
    """
    tensors, about = read_tensors(path)
    if "network" not in about:
        raise ClasswiseError(f"{path} holds a training state, not weights; take one from weights/")
    card = read_card(about["network"], str(path))
    return model_of_card(card, tensors, str(path), spec), about


def weights_file(words: str) -> Path:
    """The file that a weights file, `RUN` (its last weights) or `RUN@NAME` means."""
    if Path(words).is_file():
        return Path(words)
    folder, name = (words, "last") if Path(words).is_dir() else words.rpartition("@")[::2]
    if not folder or not Path(folder).is_dir():
        raise ClasswiseError(
            f"there is no weights file or run folder {words}; write RUN, RUN@best, or the path of "
            "a .safetensors or .pth file"
        )
    run = RunFolder(Path(folder))
    if name not in run.weights:
        raise unknown(f"weights of {folder}", name, run.weights or ["none yet"])
    return run.weights_path(name)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """JSON lines up to the first torn one."""
    records: list[dict[str, Any]] = []
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                break
    return records


def rewrite_lines(path: Path, records: list[dict[str, Any]]) -> None:
    """Replace a file of JSON lines, atomically."""
    text = "".join(json.dumps(record) + "\n" for record in records)
    write_atomically(path, text.encode())


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Add one JSON line."""
    with path.open("a") as stream:
        stream.write(json.dumps(record) + "\n")
        stream.flush()
