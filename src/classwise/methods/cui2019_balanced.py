"""Class-balanced weights by the effective number of samples (Cui et al., CVPR 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from classwise.classes.settings import ClassPolicy, ClassSettings, Feedback, Seen
from classwise.recipe import Method
from classwise.slots import Slots
from classwise.stages import epoch_of
from classwise.types import PerClass


def balanced_weights(sizes: PerClass, smoothing: float) -> PerClass:
    """w_k ∝ 1/E_k with E_k = (1 − b^{n_k})/(1 − b), scaled to a mean of 1.

    A class without samples counts as one sample, which keeps its (unused) weight finite.

    >>> [round(w, 3) for w in balanced_weights(torch.tensor([1, 3]), 0.5).tolist()]
    [1.273, 0.727]
    """
    sizes = sizes.double().clamp(min=1)
    if not smoothing:
        return torch.ones_like(sizes)
    inverse = 1 / -torch.expm1(sizes * math.log(smoothing))  # expm1: b is close to 1
    return inverse * (len(inverse) / inverse.sum())


@dataclass(frozen=True, slots=True)
class BalancedWeights(ClassPolicy):
    """The weights above from `start` on; a late start is known as deferred re-weighting."""

    writes: ClassVar[frozenset[str]] = frozenset({"label_weight", "robust_weight"})
    smoothing: float  # b
    start: float = 0

    def needs(self, epoch: int) -> frozenset[Seen]:  # noqa: ARG002
        """Nothing: class sizes are always known."""
        return frozenset()

    def update(
        self, settings: ClassSettings, feedback: Feedback
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Weigh both terms."""
        if feedback.epoch < epoch_of(self.start, feedback.epochs):
            return settings, self
        return settings.weighed(balanced_weights(feedback.sizes, self.smoothing)), self


class Balanced(Method):
    """Weigh each class by the inverse of its effective number of training samples.

    With equally many samples per class every weight is 1 and nothing changes.
    """

    name: ClassVar[str] = "balanced"
    paper: ClassVar[str] = "Cui et al., CVPR 2019"

    smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.9999  # b
    start: Annotated[float, Field(ge=0)] = 0  # epoch, or fraction of the run

    def fill(self) -> Slots:
        """One policy, and the mean weighted by it."""
        policy = BalancedWeights(self.smoothing, self.start)
        return Slots(policies=(policy,), reduction="weighted mean")
