"""Class-wise tools of a study plan (Benz et al., 2021): cost, protect, target, resample.

The plan gives no formulas; the ones here are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from classwise.attacks.names import named_condition
from classwise.classes.settings import TRAIN_ROBUST, ClassPolicy, ClassSettings, Feedback, Seen
from classwise.draws import Draws
from classwise.errors import ClasswiseError, unknown
from classwise.methods.medi2024_fairtat import aimed
from classwise.papers import PAPERS
from classwise.recipe import Among, Method
from classwise.slots import Slots
from classwise.types import Labels

WEAKEST = "weakest"


def class_number(name: str, class_names: Sequence[str]) -> int:
    """Number of the class of that name; a number that is no name counts from 0."""
    if name in class_names:
        return list(class_names).index(name)
    if name.isdecimal() and int(name) < len(class_names):
        return int(name)
    raise unknown("class", name, class_names)


def chosen_classes(to: str | int, settings: ClassSettings, feedback: Feedback) -> Tensor | None:
    """Which classes are meant: the one of that number, or those of the lowest robust accuracy.

    None while nothing is known of the weakest.
    """
    if isinstance(to, int):
        return torch.arange(len(settings.margin)) == to
    if not feedback.epoch:
        return None
    # Training without an attack has clean predictions only.
    counts = feedback.counts.get(TRAIN_ROBUST) or feedback.counts[Seen("train", "clean")]
    reached = counts.accuracy.where(counts.present, torch.inf)
    return reached == reached.min()  # classes that tie are all meant


@dataclass(frozen=True, slots=True)
class _OneClass(ClassPolicy):
    """A policy about one class, given by name or found as the weakest."""

    to: str | int

    def needs(self, epoch: int) -> frozenset[Seen]:
        """Training statistics where the weakest is asked for."""
        return frozenset({TRAIN_ROBUST}) if epoch and self.to == WEAKEST else frozenset()

    def bind(self, class_names: Sequence[str]) -> ClassPolicy:
        """Turn the name into a number."""
        if isinstance(self.to, int) or self.to == WEAKEST:
            return self
        return replace(self, to=class_number(self.to, class_names))


@dataclass(frozen=True, slots=True)
class TargetClass(_OneClass):
    """Every sample is pushed towards one class; samples of that class towards any other."""

    writes: ClassVar[frozenset[str]] = frozenset({"target_odds"})

    def update(
        self, settings: ClassSettings, feedback: Feedback
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Aim at the class; at all others alike while the weakest is not known."""
        return aimed(settings, chosen_classes(self.to, settings, feedback)), self


@dataclass(frozen=True, slots=True)
class ProtectedClass(_OneClass):
    """One class weighs `weight`, the others 1."""

    writes: ClassVar[frozenset[str]] = frozenset({"label_weight", "robust_weight"})
    weight: float = 1.0

    def update(
        self, settings: ClassSettings, feedback: Feedback
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Weigh both terms."""
        chosen = chosen_classes(self.to, settings, feedback)
        if chosen is None:
            return settings, self
        return settings.weighed(1 + (self.weight - 1) * chosen), self


@dataclass(frozen=True, slots=True)
class FixedWeights(ClassPolicy):
    """Weights as given, by class name or for all classes in order."""

    writes: ClassVar[frozenset[str]] = frozenset({"label_weight", "robust_weight"})
    weights: dict[str, float] | list[float]

    def needs(self, epoch: int) -> frozenset[Seen]:  # noqa: ARG002
        """Nothing."""
        return frozenset()

    def bind(self, class_names: Sequence[str]) -> ClassPolicy:
        """Put the weights in class order; classes not named weigh 1."""
        if isinstance(self.weights, list):
            if len(self.weights) != len(class_names):
                raise ClasswiseError(
                    f"cost has {len(self.weights)} weights for {len(class_names)} classes; "
                    "give one per class, or name the classes: weights={'cat': 2}"
                )
            return self
        ordered = [1.0] * len(class_names)
        for name, weight in self.weights.items():
            ordered[class_number(name, class_names)] = weight
        if not any(ordered):
            raise ClasswiseError("cost weighs every class 0; give at least one a weight above 0")
        return FixedWeights(ordered)

    def update(
        self,
        settings: ClassSettings,
        feedback: Feedback,  # noqa: ARG002
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Weigh both terms."""
        assert isinstance(self.weights, list)
        return settings.weighed(torch.tensor(self.weights, dtype=torch.float64)), self


@dataclass(frozen=True, slots=True)
class EqualisingWeights(ClassPolicy):
    """w_k ∝ exp(η·(mean − acc_k)), with mean 1, from validation accuracy of the last epoch."""

    writes: ClassVar[frozenset[str]] = frozenset({"label_weight", "robust_weight"})
    rate: float  # η
    attack: str

    def needs(self, epoch: int) -> frozenset[Seen]:
        """Validation accuracy."""
        return frozenset({Seen("valid", self.attack)}) if epoch else frozenset()

    def update(
        self, settings: ClassSettings, feedback: Feedback
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Weigh both terms."""
        if not feedback.epoch:
            return settings, self
        counts = feedback.counts.get(Seen("valid", self.attack))
        if counts is None:
            raise ClasswiseError(
                "cost(equalise=…) needs validation data, but there are none; set valid=0.02"
            )
        accuracy = counts.accuracy.where(counts.present, counts.accuracy[counts.present].mean())
        # The mean cancels in the softmax, which is also safe for a large η.
        return settings.weighed(len(accuracy) * (-self.rate * accuracy).softmax(0)), self


@dataclass(frozen=True, slots=True)
class BalancedSampler:
    """As many visits to every class as to any other, as many in all as there are images.

    The images of a class take turns in a fresh order each epoch, so their visits differ by one
    at most.
    """

    def order(self, labels: Labels, draws: Draws) -> Tensor:
        """Row numbers in the order of their visits."""
        count = len(labels)
        shuffled = draws.order(count)
        grouped = shuffled[labels[shuffled].argsort(stable=True)]
        sizes = torch.bincount(labels)
        there = sizes.nonzero().squeeze(1)
        visits = torch.full_like(there, count // len(there))
        # Who gets the visits that are left over changes from epoch to epoch.
        turn = Draws(draws.seed, f"{draws.purpose} turn", draws.epoch).order(len(there))
        visits[turn[: count % len(there)]] += 1
        place = torch.repeat_interleave(torch.arange(len(there)), visits)
        rank = torch.arange(count) - (visits.cumsum(0) - visits)[place]
        sizes = sizes[there]
        rows = grouped[(sizes.cumsum(0) - sizes)[place] + rank % sizes[place]]
        mixed = Draws(draws.seed, f"{draws.purpose} mixed", draws.epoch).order(count)
        return rows[mixed]


def _spelled(name: Any) -> Any:
    """Class numbers may be written without quotes."""
    return str(name) if isinstance(name, int) and not isinstance(name, bool) else name


def _checked(weights: Any) -> Any:
    """Said here in one line; a union of types would complain about the wrong half."""
    if weights is None:
        return None
    if not isinstance(weights, dict | list):
        raise ValueError("give a list with one weight per class, or {'cat': 2}")
    for weight in weights.values() if isinstance(weights, dict) else weights:
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not number or not 0 <= weight < math.inf:
            raise ValueError("every weight must be a number, 0 or more")
    if isinstance(weights, dict):
        return {_spelled(name): float(weight) for name, weight in weights.items()}
    return [float(weight) for weight in weights]


ClassName = Annotated[str, BeforeValidator(_spelled)]


class Target(Method):
    """Attack towards one class: the weakest so far, or the one named by `to`."""

    name: ClassVar[str] = "target"
    paper: ClassVar[str] = PAPERS["benz"].source

    to: ClassName = WEAKEST

    def fill(self) -> Slots:
        """One policy, which writes the target odds."""
        return Slots(policies=(TargetClass(self.to),))


class Protect(Method):
    """Give one critical class more weight: the one named by `to`, or the weakest so far."""

    name: ClassVar[str] = "protect"
    paper: ClassVar[str] = PAPERS["benz"].source

    to: ClassName = WEAKEST
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 2.0

    def fill(self) -> Slots:
        """One policy, and the mean weighted by it."""
        return Slots(policies=(ProtectedClass(self.to, self.weight),), reduction="weighted mean")


class Cost(Method):
    """Weigh classes by given weights, or the more the lower their validation accuracy is."""

    name: ClassVar[str] = "cost"
    paper: ClassVar[str] = PAPERS["benz"].source

    weights: Annotated[dict[str, float] | list[float] | None, BeforeValidator(_checked)] = None
    equalise: Annotated[float, Field(ge=0)] | None = None  # η; 1 where no weights are given
    attack: str | None = None  # to equalise under; pgd-10, or clean where training is clean

    def resolve(self, among: Among) -> Method:
        """Equalise where no weights are given."""
        if self.weights is not None:
            if self.equalise is not None or self.attack is not None:
                raise ClasswiseError("cost takes either weights or equalise; give one of them")
            if not self.weights or (isinstance(self.weights, list) and not any(self.weights)):
                raise ClasswiseError("cost(weights=…): give at least one weight above 0")
            return self
        usual = "clean" if "clean" in among.names else "pgd-10"
        return self.model_copy(
            update={
                "equalise": 1.0 if self.equalise is None else self.equalise,
                "attack": named_condition(self.attack or usual)[0],
            }
        )

    def fill(self) -> Slots:
        """One policy, and the mean weighted by it."""
        policy: ClassPolicy
        if self.weights is not None:
            policy = FixedWeights(self.weights)
        else:
            assert self.equalise is not None
            assert self.attack is not None
            policy = EqualisingWeights(self.equalise, self.attack)
        return Slots(policies=(policy,), reduction="weighted mean")


class Resample(Method):
    """Visit every class equally often in an epoch, repeating images of small classes."""

    name: ClassVar[str] = "resample"
    paper: ClassVar[str] = PAPERS["benz"].source

    def fill(self) -> Slots:
        """Fill the sampler."""
        return Slots(sampler=BalancedSampler())
