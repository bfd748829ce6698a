"""The folder of a run: who it is, how it went, and the weights it kept.

run.json             recipe, configuration, identity, versions, threads
history.jsonl        one line per epoch, per-class vectors; append-only
times.jsonl          seconds per epoch, apart because they differ from run to run
state.safetensors    all that a resume needs, with a copy of the history
state-before.safetensors  the same after the epoch before, in case that one is damaged
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

from classwise.errors import ClasswiseError, cut, unknown
from classwise.files import given_path, write_atomically
from classwise.models.card import model_of_card, read_card
from classwise.record.card import read_run_json
from classwise.record.lines import are_rates, damaged_lines, parse_lines, read_bytes, read_lines
from classwise.record.state_dict import file_and_key
from classwise.record.tensors import read_tensors
from classwise.sealed import Damaged, sealed_text

_NAMED = 3  # settings that a message names


@dataclass(frozen=True)
class RunFolder:
    """What training and audits write, and what can be read of it without knowing how to train."""

    path: Path
    own_model: str | None = None  # `module:callable` as the user named it, never as the folder does

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))  # text will do, too

    def claim(self, about: Mapping[str, Any]) -> None:
        """Take an empty folder, or step into the same run again; another one is refused."""
        if self.begun:
            if self.about.get("identity") != about["identity"]:
                raise ClasswiseError(
                    f"{self.path} holds another run ({self.about.get('recipe_name')}, identity "
                    f"{self.about.get('identity')}, not {about['identity']}"
                    f"{_differing(self.about, json.loads(sealed_text(about)))}); choose another "
                    "folder"
                )
            return
        self.check_place()
        write_atomically(self._card, sealed_text(about))

    def check_place(self) -> None:
        """Refuse a place where no run can be, before anything is written there."""
        for folder in (self.path, *self.path.parents):
            if folder.exists() and not folder.is_dir():
                raise ClasswiseError(
                    f"{self.path} cannot be a run folder: {folder} is a file; choose another folder"
                )
        # A write cut short by a kill leaves a .part file, which is nobody's property.
        ours = self._card.exists() or not self.path.exists()
        if not ours and any(p.suffix not in (".part", ".lock") for p in self.path.iterdir()):
            raise ClasswiseError(f"{self.path} exists and is no run of ours; choose another folder")

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
        if not self.begun:
            raise ClasswiseError(f"{self.path} is not a run: it has no run.json")
        return read_run_json(self.path)

    @property
    def begun(self) -> bool:
        """Whether there is anything of it on disk."""
        return given_path(self._card).exists()

    @property
    def history(self) -> list[dict[str, Any]]:
        """One record per finished epoch; a line torn by a crash is passed over."""
        records = read_lines(self._history)
        for number, record in enumerate(records, 1):
            if record["epoch"] != number:
                raise damaged_lines(self._history, f"epoch {number} is missing")
            if wrong := _wrong_in(record):
                raise damaged_lines(self._history, f"epoch {number} has no {wrong!r} to be read")
        return records

    @property
    def finished_epochs(self) -> int:
        """Epochs in its history, as far as it can be read."""
        return len(parse_lines(read_bytes(self._history))[0])

    @property
    def _history(self) -> Path:
        return self.path / "history.jsonl"

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
        path = self.weights_path(weights)
        model, said = load_model(path, spec or self.own_model)
        named = said.get("weights", weights), said.get("identity", self.about.get("identity"))
        if named != (weights, self.about.get("identity")):
            raise Damaged(
                f"{path} holds other weights: it says that it is {named[0]} of run {named[1]}, not "
                f"{weights} of {self.about.get('identity')}; put it back to where it belongs, or "
                "audit it as a file of its own elsewhere"
            )
        return model


def _wrong_in(record: Mapping[str, Any]) -> str:
    """The entry of a line of history that is not as training writes it; none is nothing."""
    valid, settings = record.get("valid"), record.get("settings", {})
    fine = {
        "loss": isinstance(record.get("loss"), dict),
        "train": are_rates(record.get("train")),
        "valid": isinstance(valid, dict) and all(map(are_rates, valid.values())),
        "settings": isinstance(settings, dict)
        and all(isinstance(values, list) for values in settings.values()),
    }
    return next((name for name, good in fine.items() if not good), "")


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
    """The file that `FILE`, `FILE@KEY`, `RUN` (its last weights) or `RUN@NAME` means."""
    file = file_and_key(words)[0]
    if file.is_file():
        return file
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


def _differing(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """In which settings two runs differ, said in words; both as they stand in run.json.

    >>> _differing({"config": {"epochs": 30, "lr": 0.1}}, {"config": {"epochs": 3, "lr": 0.1}})
    '; epochs is 30 there and 3 here'
    """
    one, other = ({**_settings(run, "recipe"), **_settings(run, "config")} for run in (there, here))
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    said = [
        f"{cut(name, 50)} is {cut(one.get(name), 50)} there and {cut(other.get(name), 50)} here"
        for name in names[:_NAMED]
    ]
    said += [f"{len(names) - _NAMED} more settings differ"] * (len(names) > _NAMED)
    said += ["its data differ"] * (there.get("data") != here.get("data"))
    said += ["the code of its methods differs"] * (there.get("sources") != here.get("sources"))
    return "".join(f"; {words}" for words in said)


def _settings(run: Mapping[str, Any], part: str) -> dict[str, Any]:
    """The settings in a part of run.json, those of a method under METHOD.OPTION."""
    found = run.get(part)
    flat: dict[str, Any] = {}
    for name, value in found.items() if isinstance(found, dict) else ():
        if part == "recipe" and isinstance(value, dict) and value:
            flat |= {f"{name}.{option}": one for option, one in value.items()}
        else:
            flat[name] = value
    return flat
