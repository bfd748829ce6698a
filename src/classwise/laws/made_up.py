"""Made-up worlds to hold a method against: class statistics, logits, a few digits, a teacher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from classwise.classes.counts import ClassCounts
from classwise.classes.settings import ClassSettings
from classwise.data.dataset import Dataset, DataSource
from classwise.data.sources import open_data
from classwise.data.splits import rank_within_class
from classwise.models import build_model
from classwise.objective import Objective, Outer
from classwise.recipe import Method, Recipe, compose
from classwise.recipe_text import parse_recipe
from classwise.record.tensors import write_tensors

CLASS_NUMBERS = (2, 3, 10, 100)


@dataclass(frozen=True)
class Subject:
    """A method under examination, and the recipe that it needs beside it."""

    method: Method
    beside: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """The options that were given."""
        return {name: getattr(self.method, name) for name in sorted(self.method.model_fields_set)}

    @property
    def text(self) -> str:
        """The recipe as one would write it."""
        inside = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        call = f"{self.method.name}({inside})" if inside else self.method.name
        return "+".join(filter(None, [self.beside, call]))

    @property
    def company(self) -> tuple[Method, ...]:
        """What stands beside the method."""
        return parse_recipe(self.beside).given if self.beside else ()

    @property
    def recipe(self) -> Recipe:
        """The recipe, composed anew each time, so that nothing is left over from before."""
        return compose([*self.company, type(self.method)(**self.options)])


@dataclass(frozen=True)
class World:
    """What class statistics may look like; classes are unbalanced in all of them."""

    name: str
    missing: tuple[int, ...] = ()  # classes without a sample
    perfect: bool = False  # no mistake at all


WORLDS = (
    World("unbalanced"),
    World("one class empty", missing=(1,)),
    World("no mistake", (), True),
)


def base_settings(num_classes: int) -> ClassSettings:
    """Settings that treat all classes alike, in double precision."""
    one = torch.ones(num_classes, dtype=torch.float64)
    zero = 0 * one
    return ClassSettings(0.2 * one, 0.05 * one, 3 * one, one, one, zero, one, one)


def uneven_settings(num_classes: int, seed: int = 0) -> ClassSettings:
    """Settings that differ from class to class."""
    rng = torch.Generator().manual_seed(seed)

    def rand() -> Tensor:
        return torch.rand(num_classes, generator=rng, dtype=torch.float64)

    return replace(
        base_settings(num_classes),
        beta=5 * rand() + 0.5,
        label_weight=rand() + 0.1,
        robust_weight=rand() + 0.1,
    )


def objective_of(recipe: Recipe) -> Objective:
    """The loss of a recipe; a composed one always has one."""
    objective = recipe.slots.objective
    assert objective is not None
    return objective


@cache
def _answers(num_classes: int, seed: int, world: World) -> tuple[Tensor, Tensor, Tensor]:
    """Labels of unbalanced classes, what was predicted, and logits: the same for every method."""
    rng = torch.Generator().manual_seed(seed)
    sizes = torch.randint(3, 40, (num_classes,), generator=rng)
    sizes[list(world.missing)] = 0
    labels = torch.repeat_interleave(torch.arange(num_classes), sizes)
    guess = torch.randint(num_classes, labels.shape, generator=rng)
    skill = torch.rand(num_classes, generator=rng)[labels]
    right = torch.rand(labels.shape, generator=rng) < skill
    predicted = labels if world.perfect else torch.where(right, labels, guess)
    logits = torch.randn(len(labels), num_classes, generator=rng, dtype=torch.float64)
    return labels, predicted, logits


def class_counts(recipe: Recipe, num_classes: int, seed: int, world: World) -> ClassCounts:
    """Unbalanced class statistics with every part that a policy might ask for."""
    drawn = _answers(num_classes, seed, world)
    labels, predicted, logits = (part.clone() for part in drawn)  # a loss may write into them
    rows = base_settings(num_classes).rows(labels)
    objective = objective_of(recipe)
    views = dict.fromkeys(objective.views, logits)
    terms = objective.terms(Outer(views, labels, rows, teacher=logits.flip(1)))
    losses = {term.name: term.values for term in terms}
    losses["total"] = torch.stack([term.scale * term.values for term in terms]).sum(0)
    losses["label_ce"] = F.cross_entropy(logits, labels, reduction="none")
    return ClassCounts.of(labels, predicted, num_classes=num_classes, logits=logits, losses=losses)


def renamed(counts: ClassCounts, names: Tensor) -> ClassCounts:
    """The same statistics when class k is called names[k]; exact, as it only moves numbers."""
    back = names.argsort()
    probability = counts.probability
    return ClassCounts(
        counts.confusion[back][:, back],
        None if probability is None else probability[back][:, back],
        {term: sums[back] for term, sums in counts.losses.items()},
    )


@cache
def _digits() -> DataSource:
    return open_data("digits")


def few_digits(
    per_class: int = 6, classes: int = 10, missing: tuple[int, ...] = (), test: int = 3
) -> DataSource:
    """The first few digits of each class; class numbers are dense, `missing` ones have none."""
    digits = _digits()
    train = _cut(digits.train, per_class, classes, missing)
    return DataSource("tiny", train, _cut(digits.test, test, classes, ()))


def _cut(data: Dataset, per_class: int, classes: int, missing: tuple[int, ...]) -> Dataset:
    rank = rank_within_class(data.labels, torch.arange(len(data)))
    keep = (rank < per_class) & (data.labels < classes)
    for k in missing:
        keep &= data.labels != k
    rows = keep.nonzero().squeeze(1)
    return Dataset(data.images[rows], data.labels[rows], data.class_names[:classes], mirrored=False)


def write_teacher(path: Path, source: DataSource, seed: int = 5) -> None:
    """Weights of a model that has learnt nothing, for methods with a teacher."""
    network: Mapping[str, Any] = {
        "spec": "cnn(width=2)",
        "num_classes": source.train.num_classes,
        "channels": 1,
        "mean": [0.3],
        "deviation": [0.4],
    }
    weights = build_model(**network, seed=seed).state_dict()
    write_tensors(path, weights, {"network": network})


def each_table(settings: ClassSettings) -> dict[str, Tensor]:
    """The tables of class settings by name, those that are there."""
    names = settings.__dataclass_fields__
    tables = {name: getattr(settings, name) for name in names}
    return {name: table for name, table in tables.items() if table is not None}


def must(holds: object, words: str) -> None:
    """Say what is broken; a plain assert would be silent under `python -O`."""
    if not bool(holds):
        raise AssertionError(words)
