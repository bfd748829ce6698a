"""Plain training on clean images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from classwise.objective import Outer, Term, label_loss
from classwise.recipe import Method
from classwise.slots import Slots


@dataclass(frozen=True, slots=True)
class LabelObjective:
    """Cross-entropy of one view: CE(f(x), y) or CE(f(x'), y)."""

    view: str

    @property
    def views(self) -> tuple[str, ...]:
        """The one view."""
        return (self.view,)

    def terms(self, outer: Outer) -> Sequence[Term]:
        """One term, weighted by `label_weight`."""
        return [Term(f"{self.view}_ce", label_loss(outer, self.view), outer.rows.label_weight)]


class Clean(Method):
    """No attack: lower the cross-entropy of the images as they are."""

    name: ClassVar[str] = "clean"
    base: ClassVar[bool] = True

    def fill(self) -> Slots:
        """Fill the objective."""
        return Slots(objective=LabelObjective("clean"))
