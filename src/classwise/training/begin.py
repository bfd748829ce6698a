"""The weights that a run begins from: somebody's tensors, fitted by name onto the new model.

Nothing in a file is imported or evaluated, and its own model is never built: tensors are read, and
those that fit are taken. What did not fit is told, and kept in the run's card.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from classwise.errors import ClasswiseError
from classwise.files import file_hash
from classwise.models.card import read_card
from classwise.models.classifier import Classifier
from classwise.models.extra import WithExtraOutputs, find_head
from classwise.models.misfits import shown
from classwise.recipe import Recipe, compose
from classwise.record.opening import fit_to
from classwise.record.run_folder import weights_file
from classwise.record.state_dict import file_and_key, read_state_dict
from classwise.training.config import TrainConfig


def tell_begin(recipe: Recipe, begin: str | Path | None) -> Recipe:
    """Let methods that fine-tune a model know of the weights that the run begins from."""
    if begin is None:
        return recipe
    begin, methods = str(begin), []
    for method in recipe.given:
        if "begin" in type(method).model_fields:
            own = method.model_dump()["begin"]
            if own not in (None, begin) and not weights_file(own).samefile(weights_file(begin)):
                raise ClasswiseError(
                    f"--begin {begin} and {method.name}(begin={own!r}) differ; give one of them"
                )
            method = method.model_copy(update={"begin": begin})
        methods.append(method)
    return compose(methods)


def agree_on_begin(recipe: Recipe, config: TrainConfig) -> tuple[Recipe, TrainConfig]:
    """Recipe and configuration that name the same weights to begin from, if either does."""
    told = tell_begin(recipe, config.begin)
    return told, config.model_copy(update={"begin": config.begin or told.slots.begin})


@dataclass(frozen=True)
class Begun:
    """Which tensors a model took over from a file."""

    file: Path
    of: int  # tensors that the model has
    taken: list[str] = field(default_factory=list)
    grown: dict[str, str] = field(default_factory=dict)  # by name, how many rows were taken
    new: list[str] = field(default_factory=list)  # not in the file: as the seed made them
    differing: dict[str, str] = field(default_factory=dict)  # of another kind: likewise
    unused: list[str] = field(default_factory=list)  # in the file, but not in the model
    classes: str = ""  # what to know about the file's classes, if they are others

    @property
    def fitting(self) -> int:
        """How many tensors were taken, whole or in part."""
        return len(self.taken) + len(self.grown)

    @property
    def card(self) -> dict[str, Any]:
        """What run.json says of it."""
        return {
            "hash": file_hash(self.file),
            "tensors": self.of,
            "taken": len(self.taken),
            "grown": self.grown,
            "new": self.new,
            "differing": self.differing,
            "unused": self.unused,
            "classes": self.classes,
        }

    @property
    def words(self) -> str:
        """The same in a line or two."""
        parts = [f"begins from {self.file}: {self.fitting} of {self.of} tensors fit"]
        parts += [f"{name}: {rows}" for name, rows in self.grown.items()]
        if self.new:
            parts.append(f"new, not in the file: {shown(self.new)}")
        if self.differing:
            differing = [f"{name} is {words}" for name, words in self.differing.items()]
            parts.append(f"new, since they differ: {shown(differing)}")
        if self.unused:
            parts.append(f"not used: {shown(self.unused)}")
        return "; ".join([*parts, self.classes] if self.classes else parts)


def begin_from(model: nn.Module, begin: str, about: Mapping[str, Any]) -> Begun:
    """Copy the tensors that fit; refuse a file of which less than half of the model could."""
    path = weights_file(begin)
    tensors, told = read_state_dict(path, file_and_key(begin)[1])
    state = model.state_dict()
    wanted = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    found = fit_to(model, tensors, about["network"]["spec"]).tensors
    head = _Head.of(model, about["network"]["num_classes"], told, path)
    begun = Begun(path, len(wanted), classes=head.compare(about["data"], told.get("data")))
    for name, value in wanted.items():
        if name not in found:
            begun.new.append(name)
            continue
        there, k = found.pop(name), head.num_classes
        how = head.fit(name, there, value)
        if how == "whole":
            state[name] = there.to(value)
            begun.taken.append(name)
        elif how == "classes":
            state[name] = torch.cat([there[:k].to(value), value[k:]])
            begun.grown[name] = f"the rows of the {k} classes taken, new rows: {len(value) - k}"
        else:
            begun.differing[name] = head.difference(there, value)
    begun.unused.extend(sorted(found))
    _check(begun, wanted, state)
    model.load_state_dict(state)
    return begun


@dataclass(frozen=True)
class _Head:
    """The layer whose rows are classes, and how many of them the run and the file have."""

    tensors: tuple[str, ...]  # none where a model of one's own does not show which it is
    num_classes: int
    file_classes: int | None  # None where the file does not say

    @classmethod
    def of(cls, model: nn.Module, num_classes: int, told: Mapping[str, Any], file: Path) -> _Head:
        if isinstance(model, Classifier):
            path = "head"
        elif isinstance(model, WithExtraOutputs):
            path = model.head_path
        else:
            try:
                path = find_head(model, num_classes)
            except ClasswiseError:
                path = ""
        classes = read_card(told["network"], str(file)).num_classes if told else None
        return cls((f"{path}.weight", f"{path}.bias") if path else (), num_classes, classes)

    def fit(self, name: str, there: Tensor, value: Tensor) -> Literal["whole", "classes", "not"]:
        """How much of a tensor can be taken."""
        whole = there.shape == value.shape
        if there.is_floating_point() != value.is_floating_point():
            return "not"
        if name not in self.tensors:
            return "whole" if whole else "not"
        if self.file_classes not in (None, self.num_classes):
            return "not"  # also where the numbers of rows agree: other rows mean other classes
        if whole:
            return "whole"
        # A file that says nothing of its classes has as many as it has rows.
        rows = there.shape[:1].numel() if self.file_classes is None else self.num_classes
        alike = there.ndim == value.ndim and there.shape[1:] == value.shape[1:]
        enough = self.num_classes <= min(len(there), len(value))
        return "classes" if alike and rows == self.num_classes and enough else "not"

    def difference(self, there: Tensor, value: Tensor) -> str:
        """Why a tensor was not taken."""
        one, other = _kind(there), _kind(value)
        if one == other:
            return f"for {self.file_classes} classes, not {self.num_classes}"
        return f"{one}, not {other}"

    def compare(self, ours: Mapping[str, Any], theirs: Any) -> str:
        """What to say where the file's classes are others than the run's."""
        if self.file_classes not in (None, self.num_classes):
            return (
                f"the file has {self.file_classes} classes, not {self.num_classes}: the head is new"
            )
        names = theirs.get("class_names") if isinstance(theirs, dict) else None
        if isinstance(names, list) and names != list(ours["class_names"]):
            return f"the file's classes are others ({shown([str(name) for name in names], 3)})"
        return ""


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{tuple(tensor.shape)}"


def _check(begun: Begun, wanted: Mapping[str, Tensor], fitted: Mapping[str, Any]) -> None:
    """Refuse a file of which too little fits, or whose numbers are none."""
    if not begun.fitting or 2 * begun.fitting < begun.of:
        pairs = []
        for name in begun.new:
            near = difflib.get_close_matches(name, begun.unused, n=1)
            pairs += [f"its {near[0]} is perhaps the model's {name}"] if near else []
        hints = [f"its {name} is {words}" for name, words in begun.differing.items()] + pairs
        if not hints:
            hints = [f"the model has {shown(list(wanted))}; the file has {shown(begun.unused)}"]
        raise ClasswiseError(
            f"{begun.file} does not fit: it has {begun.fitting} of the model's {begun.of} tensors, "
            f"and half are needed; {shown(hints)}"
        )
    for name in (*begun.taken, *begun.grown):
        if not bool(torch.isfinite(fitted[name]).all()):
            raise ClasswiseError(f"{begun.file}: {name} holds values that are not finite")
