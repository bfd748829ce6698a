"""CFA: class-wise calibrated fair adversarial training (Wei et al., CVPR 2023).

Its parts are methods of their own; here is the margin per class (CCM).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field

from classwise.classes.settings import (
    TRAIN_ROBUST,
    ClassPolicy,
    ClassSettings,
    Feedback,
    Seen,
)
from classwise.recipe import Among, Method, epoch_of
from classwise.slots import Slots


@dataclass(frozen=True, slots=True)
class CalibratedMargin(ClassPolicy):
    """CCM: ε_k = (λ₁ + t_k) · ε, so a class already robust faces a stronger attack.

    t_k is the robust training accuracy of class k over the epoch that just ended, under that
    epoch's own ε_k.
    """

    writes: ClassVar[frozenset[str]] = frozenset({"margin"})
    floor: float  # λ₁
    start: float = 1  # first calibrated epoch

    def needs(self, epoch: int) -> frozenset[Seen]:
        """Training statistics, once there is an epoch behind us."""
        return frozenset({TRAIN_ROBUST}) if epoch else frozenset()

    def update(
        self, settings: ClassSettings, feedback: Feedback
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Scale the base margin by λ₁ plus the robust accuracy of the class."""
        if feedback.epoch < max(1, epoch_of(self.start, feedback.epochs)):
            return settings, self
        scale = self.floor + feedback.counts[TRAIN_ROBUST].known_accuracy
        return replace(settings, margin=settings.margin * scale.to(settings.margin)), self


MARGIN_FLOORS = {"fat": 0.7, "trades": 0.3}  # λ₁ of the paper; 0.5 on AT


class CCM(Method):
    """A margin per class, ε_k = (λ₁ + t_k)·ε, from its robust training accuracy."""

    name: ClassVar[str] = "ccm"
    paper: ClassVar[str] = "Wei et al., CVPR 2023"

    margin_floor: Annotated[float, Field(gt=0, le=1)] | None = None  # λ₁
    start: Annotated[float, Field(ge=0)] = 1  # epoch, or fraction of the run

    def resolve(self, among: Among) -> Method:
        """Take the paper's floor for the base."""
        if self.margin_floor is not None:
            return self
        return self.model_copy(update={"margin_floor": among.first(MARGIN_FLOORS, 0.5)})

    def fill(self) -> Slots:
        """One policy, which writes the margin."""
        assert self.margin_floor is not None
        return Slots(policies=(CalibratedMargin(self.margin_floor, self.start),))
