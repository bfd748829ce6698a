"""The folder of a run: who it is, how it went, and the weights it kept.

run.json             recipe, configuration, identity, versions
history.jsonl        one line per epoch, per-class vectors; append-only
times.jsonl          seconds per epoch, apart because they differ from run to run
state.safetensors    all that a resume needs
weights/*.safetensors  last, best, every Nth epoch if wanted, and the same for every average
predictions/*.parquet  written by audits
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from classwise.errors import ClasswiseError, unknown
from classwise.files import write_atomically
from classwise.foreign import installed
from classwise.methods import METHODS
from classwise.models.card import model_of_card, read_card
from classwise.recipe import Recipe, compose
from classwise.recipe_text import make_method
from classwise.training.checkpoint import read_tensors
from classwise.training.config import TrainConfig
from classwise.training.fluctuation import mean_fluctuation
from classwise.training.watched import parse_watched


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
    run = Run(Path(folder))
    if name not in run.weights:
        raise unknown(f"weights of {folder}", name, run.weights or ["none yet"])
    return run.weights_path(name)


def file_hash(path: Path) -> str:
    """Sixteen hex digits of a file's content."""
    try:
        with path.open("rb") as stream:  # piece by piece: weights may be larger than the memory
            return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
    except OSError as reason:
        raise ClasswiseError(f"cannot read {path}: {reason.strerror}") from None


@dataclass(frozen=True)
class Run:
    """A training run on disk."""

    path: Path
    own_model: str | None = None  # `module:callable` as the user named it, never as the folder does

    def claim(self, about: Mapping[str, Any]) -> None:
        """Take an empty folder, or step into the same run again; another one is refused."""
        if self._card.exists():
            if self.about.get("identity") != about["identity"]:
                changed = self.about.get("sources") != about.get("sources")
                reason = ", and the code of its methods differs" * changed
                raise ClasswiseError(
                    f"{self.path} holds another run ({self.about['recipe_name']}, identity "
                    f"{self.about.get('identity')}, not {about['identity']}{reason}); choose "
                    "another --out"
                )
            return
        for folder in (self.path, *self.path.parents):
            if folder.exists() and not folder.is_dir():
                raise ClasswiseError(
                    f"{self.path} cannot be a run folder: {folder} is a file; choose another --out"
                )
        # A write cut short by a kill leaves a .part file, which is nobody's property.
        if self.path.exists() and any(p.suffix != ".part" for p in self.path.iterdir()):
            raise ClasswiseError(f"{self.path} exists and is no run of ours; choose another --out")
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
    def config(self) -> TrainConfig:
        """The configuration it was trained with."""
        if "config" not in self.about:
            raise ClasswiseError(
                f"{self.path} keeps audits of a model that was not trained by classwise; to audit "
                f"more, name that model: classwise audit MODEL --data DATA --out {self.path}"
            )
        return TrainConfig(**self.about["config"])

    @property
    def recipe(self) -> Recipe:
        """The recipe it was trained with, where all its methods are built in."""
        return self.read_recipe()

    def read_recipe(self, imports: Collection[str] = ()) -> Recipe:
        """The recipe it was trained with; `imports` are the modules that it may have imported.

        run.json may be a stranger's file, so by itself it leads to no import at all.
        """
        for name in self.about["recipe"]:
            homes = [entry.module for entry in installed().get(name, ()) if name not in METHODS]
            homes += [name.partition(":")[0]] if ":" in name else []
            for home in homes:
                if home not in imports:
                    raise ClasswiseError(
                        f"{self.path} was trained with {name}, which is not part of classwise; if "
                        f'you trust that code, use run.read_recipe(imports=("{home}",))'
                    )
        methods = self.about["recipe"].items()
        return compose(make_method(name, options, imports) for name, options in methods)

    @property
    def begun(self) -> bool:
        """Whether there is anything of it on disk."""
        return self._card.exists()

    @property
    def finished_epochs(self) -> int:
        """Epochs in its history."""
        return len(self.history)

    @property
    def unopened_averages(self) -> list[str]:
        """Averages that took in no epoch, so that there are no weights of theirs to audit."""
        taken = self.history[-1].get("averages", {}) if self.history else {}
        return [name for name, count in taken.items() if not count]

    @property
    def history(self) -> list[dict[str, Any]]:
        """One record per finished epoch; a line torn by a crash is passed over."""
        return read_lines(self.path / "history.jsonl")

    def fluctuation(self, of: str, last: int) -> dict[str, Any]:
        """Mean change of each class, and of the worst, between epochs in a row, over the last ones.

        `of` is written as in `watch`: `valid:pgd-10` is in every history, `valid:pgd-10@ema` for an
        average; `test:pgd-10@ema` must have been watched in every epoch.
        """
        wanted = parse_watched(of, ("valid", "test", "train"))
        rates, known = {}, set()
        if wanted.seen.split == "valid":
            for record in self.history:
                found = record["valid"].get(wanted.average or "live", {})
                known |= {f"valid:{attack}" for attack in found}
                if wanted.seen.attack in found:
                    rates[record["epoch"]] = found[wanted.seen.attack]
        else:
            for record in read_lines(self.path / "watch.jsonl"):
                known |= set(record) - {"epoch"}
                if str(wanted) in record:
                    rates[record["epoch"]] = record[str(wanted)]
        if not rates:
            raise unknown(f"statistics of {self.path}", of, known or ["none"])
        return mean_fluctuation(rates, last)

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
