"""Plain training on clean images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from classwise.classes.settings import ClassSettings
from classwise.objective import Term, label_loss
from classwise.recipe import Method, Slots
from classwise.types import Labels, Logits


@dataclass(frozen=True, slots=True)
class LabelObjective:
    """Cross-entropy of one view: CE(f(x), y) or CE(f(x'), y)."""

    view: str

    @property
    def views(self) -> tuple[str, ...]:
        """The one view."""
        return (self.view,)

    def terms(
        self, outputs: Mapping[str, Logits], labels: Labels, rows: ClassSettings
    ) -> Sequence[Term]:
        """One term, weighted by `label_weight`."""
        values = label_loss(outputs[self.view], labels, rows)
        return [Term(f"{self.view}_ce", values, rows.label_weight)]


class Clean(Method):
    """No attack: lower the cross-entropy of the images as they are."""

    name: ClassVar[str] = "clean"
    base: ClassVar[bool] = True

    def fill(self) -> Slots:
        """Fill the objective."""
        return Slots(objective=LabelObjective("clean"))
