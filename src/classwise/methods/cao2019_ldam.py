"""LDAM: label-distribution-aware logit margins (Cao et al., NeurIPS 2019)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field

from classwise.classes.settings import ClassPolicy, ClassSettings, Feedback, Seen
from classwise.methods.cui2019_balanced import BalancedWeights
from classwise.recipe import Method
from classwise.slots import Slots
from classwise.types import PerClass


def logit_margins(sizes: PerClass, largest: float) -> PerClass:
    """m_k = C·n_k^(−1/4), where C makes the smallest class's margin the largest.

    >>> import torch
    >>> logit_margins(torch.tensor([16, 1, 0]), 0.5).tolist()
    [0.25, 0.5, 0.5]
    """
    there = sizes.double().clamp(min=1)
    least = there[sizes > 0].min() if bool((sizes > 0).any()) else there.min()
    return largest * (least / there).clamp(max=1) ** 0.25


@dataclass(frozen=True, slots=True)
class SizeMargins(ClassPolicy):
    """s·m_k comes off the true class's logit, which is s times a cosine."""

    writes: ClassVar[frozenset[str]] = frozenset({"logit_margin"})
    largest: float
    scale: float  # s

    def needs(self, epoch: int) -> frozenset[Seen]:  # noqa: ARG002
        """Nothing: class sizes are always known."""
        return frozenset()

    def update(
        self, settings: ClassSettings, feedback: Feedback
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Set the margin of the logits."""
        margin = self.scale * logit_margins(feedback.sizes, self.largest)
        return replace(settings, logit_margin=margin.to(settings.logit_margin)), self


class LDAM(Method):
    """Ask a larger logit margin of classes with fewer samples: CE(s·(cos − m_y), y).

    The head compares directions (cosine of features and class weights). `reweight` turns
    class-balanced weights on late (DRW); the paper does so at 0.8 of the run.
    """

    name: ClassVar[str] = "ldam"
    paper: ClassVar[str] = "Cao et al., NeurIPS 2019"

    largest: Annotated[float, Field(ge=0, le=2)] = 0.5  # margin of the smallest class, in cosines
    scale: Annotated[float, Field(gt=0)] = 30.0  # s
    reweight: Annotated[float, Field(ge=0)] | None = None  # epoch, or fraction; None is never
    smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.9999  # b of the class-balanced weights

    def fill(self) -> Slots:
        """The margin, the head, and perhaps the late weights."""
        policies: tuple[ClassPolicy, ...] = (SizeMargins(self.largest, self.scale),)
        if self.reweight is not None:
            policies += (BalancedWeights(self.smoothing, self.reweight),)
        return Slots(
            policies=policies,
            reduction=None if self.reweight is None else "weighted mean",
            head="cosine",
            head_scale=self.scale,
        )
