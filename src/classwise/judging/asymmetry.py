"""Which of two classes is taken for the other more often: A for B, or B for A?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from classwise.judging.metrics import count_predictions
from classwise.record.rows import Predictions
from classwise.statistics.intervals import Rates
from classwise.statistics.paired import holm
from classwise.statistics.redrawn import Whole
from classwise.statistics.two_rates import difference_interval, equal_rates_p_value


class Uneven(NamedTuple):
    """A pair of classes, the one that is taken for the other more often first."""

    first: str
    second: str
    there: int  # images of the first class that were taken for the second
    there_of: int
    back: int
    back_of: int
    difference: float  # of the two rates
    low: float
    high: float
    p_value: float  # corrected for all pairs

    @property
    def words(self) -> str:
        """One line."""
        rates = 100 * self.there / self.there_of, 100 * self.back / self.back_of
        return (
            f"{self.first} taken for {self.second} {rates[0]:.1f} %, the reverse {rates[1]:.1f} % "
            f"(difference {100 * self.low:+.1f} to {100 * self.high:+.1f} points, corrected "
            f"p {self.p_value:.2g})"
        )


@dataclass(frozen=True)
class Asymmetry:
    """Confusions of one run under one condition, K×K, and where they are uneven."""

    class_names: tuple[str, ...]
    confusion: Whole
    level: float = 0.95

    @classmethod
    def of(cls, found: Predictions, class_names: Sequence[str], level: float = 0.95) -> Asymmetry:
        """Count the verdicts of one condition."""
        counts = count_predictions(found.label, found.predicted, len(class_names))
        return cls(tuple(class_names), counts.confusion.numpy(), level)

    @cached_property
    def mutual(self) -> Rates:
        """(share of A taken for B + share of B taken for A)/2 of every pair; nan without images."""
        sizes = self.confusion.sum(1, keepdims=True)
        share = np.divide(
            self.confusion, sizes, out=np.full(self.confusion.shape, np.nan), where=sizes > 0
        )
        both: Rates = (share + share.T) / 2
        return both

    @cached_property
    def pairs(self) -> list[Uneven]:
        """All pairs with a confusion, the surest first; corrected for all pairs there are (Holm).

        Fisher's exact test of equal rates, and Newcombe's interval for their difference.
        """
        sizes = self.confusion.sum(1)
        above = np.triu_indices(len(sizes), 1)
        seen = (self.confusion[above] + self.confusion.T[above] > 0) & (
            (sizes[above[0]] > 0) & (sizes[above[1]] > 0)
        )
        i, j = above[0][seen], above[1][seen]
        there, back = self.confusion[i, j], self.confusion[j, i]
        turned = back / sizes[j] > there / sizes[i]
        i, j = np.where(turned, j, i), np.where(turned, i, j)
        there, back = np.where(turned, back, there), np.where(turned, there, back)
        counts = there, sizes[i], back, sizes[j]
        every = np.ones(len(above[0]))  # pairs without a confusion count as looked at
        every[seen] = equal_rates_p_value(*counts)
        p = holm(every)[seen]
        low, high = difference_interval(*counts, self.level)
        gap = there / sizes[i] - back / sizes[j]
        return [
            Uneven(
                self.class_names[i[n]],
                self.class_names[j[n]],
                *(int(count[n]) for count in counts),
                *(float(value[n]) for value in (gap, low, high, p)),
            )
            for n in np.lexsort((-gap, p))
        ]

    @property
    def uneven(self) -> list[Uneven]:
        """The pairs that are surely uneven, all of them considered."""
        return [pair for pair in self.pairs if pair.p_value <= 1 - self.level]
