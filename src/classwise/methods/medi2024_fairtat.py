"""FAIR-TAT: targeted attacks towards the classes that others are taken for (Medi et al., 2024)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from classwise.classes.settings import (
    TRAIN_ROBUST,
    ClassPolicy,
    ClassSettings,
    Feedback,
    RenewedPolicy,
    Seen,
)
from classwise.errors import ClasswiseError
from classwise.papers import PAPERS
from classwise.recipe import Among, Method
from classwise.slots import Slots
from classwise.types import ClassByClass, PerClass


def odds_table(columns: PerClass) -> ClassByClass:
    """Target odds that favour the same columns in every row; zero diagonal, rows add up to 1.

    A class whose others all have no odds aims at any of them alike.

    >>> odds_table(torch.tensor([1.0, 3.0, 0.0])).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.25, 0.75, 0.0]]
    """
    others = torch.ones_like(columns).expand(len(columns), -1).clone().fill_diagonal_(0)
    kept = columns * others
    kept = torch.where(kept.sum(1, keepdim=True) > 0, kept, others)
    return kept / kept.sum(1, keepdim=True)


def aimed(settings: ClassSettings, columns: Tensor | None) -> ClassSettings:
    """The settings with these target odds; None aims at all other classes alike."""
    if columns is None:
        columns = torch.ones_like(settings.margin)
    return replace(settings, target_odds=odds_table(columns.to(settings.margin)))


@dataclass(frozen=True, slots=True)
class MistakenOdds(RenewedPolicy):
    """ψ_j ∝ C_FPS(j), the share of all mistakes under attack that were called class j.

    The released code takes softmax(2·C_FPS) instead. Without any statistics, as at the beginning
    of the first epoch, it aims uniformly.
    """

    writes: ClassVar[frozenset[str]] = frozenset({"target_odds"})
    odds: str
    sharpness: float

    def needs(self, epoch: int) -> frozenset[Seen]:
        """Training statistics, unless the odds stay uniform."""
        return frozenset({TRAIN_ROBUST}) if epoch and self.odds != "uniform" else frozenset()

    def update(
        self, settings: ClassSettings, feedback: Feedback
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Set the odds of the next epoch, or of the next batches."""
        if self.odds == "uniform" or not feedback.trained:
            return aimed(settings, None), self
        share = feedback.counts[TRAIN_ROBUST].false_positive_share
        if self.odds == "softmax":
            share = (self.sharpness * share).softmax(0)
        return aimed(settings, share), self


class FairTAT(Method):
    """Attack towards a class drawn more often the more other classes are taken for it.

    Only the target is its business: the paper's row is `at+ccm+fairtat`. Start, step, stop and
    BatchNorm mode stay the base's, whose own reference and direction give way to the target.
    """

    name: ClassVar[str] = "fairtat"
    paper: ClassVar[str] = PAPERS["medi"].source

    odds: Literal["cfps", "softmax", "uniform"] = "cfps"
    sharpness: Annotated[float, Field(ge=0)] = 2.0  # factor inside the softmax
    every: Annotated[int, Field(ge=1)] | None = None  # batches; None: once per epoch

    def resolve(self, among: Among) -> Method:  # noqa: ARG002
        """Refuse to renew what never changes."""
        if self.odds == "uniform" and self.every is not None:
            raise ClasswiseError(
                f"fairtat(odds=uniform, every={self.every}): uniform odds look at no statistics; "
                "leave every out, or take odds=cfps"
            )
        return self

    def fill(self) -> Slots:
        """One policy, which writes the target odds."""
        return Slots(policies=(MistakenOdds(self.odds, self.sharpness, every=self.every),))
