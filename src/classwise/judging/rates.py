"""Rates of named groups, and what follows from them: intervals, worst, best, spread, tail.

Written once. Classes are one way to group samples; cameras, weathers and factors are others.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from classwise.errors import ClasswiseError
from classwise.statistics.intervals import Rates, exact, simultaneous, wilson, worst_interval
from classwise.statistics.worst_class import ExpectedWorst, equal_classes_p_value, expected_worst

ANNOTATED = "all annotated"  # the group of all images that somebody has looked at
Whole: TypeAlias = npt.NDArray[np.int64]
Intervals: TypeAlias = dict[str, tuple[float, float] | None]


class Tail(NamedTuple):
    """The mean over the worst groups, and which they are."""

    mean: float
    classes: tuple[str, ...]


class Tally(NamedTuple):
    """How many samples of each group are right, out of how many."""

    names: tuple[str, ...]
    hits: Whole
    sizes: Whole
    overlapping: bool = False  # some sample is in several groups
    outside: int = 0  # samples that are in no group

    def under(self, names: Sequence[str]) -> Tally:
        """Bring the counts into the order of `names`; a name that is not here has no samples."""
        place = {name: k for k, name in enumerate(self.names)}
        at = [place.get(name, -1) for name in names]
        # the last entry stands for names that are not here
        hits, sizes = (np.append(counts, 0)[at] for counts in (self.hits, self.sizes))
        return Tally(tuple(names), hits, sizes, self.overlapping, self.outside)


class RatedGroups(ABC):
    """All that is said of groups, from one tally; a group without samples is None or left out."""

    @property
    @abstractmethod
    def tally(self) -> Tally:
        """What was counted."""

    @property
    @abstractmethod
    def confidence(self) -> float:
        """Of all intervals, such as 0.95."""

    @cached_property
    def rates(self) -> Rates:
        """Accuracy of each group in order; nan for no samples."""
        with np.errstate(invalid="ignore"):
            found: Rates = self.tally.hits / self.tally.sizes
        return found

    @property
    def by_group(self) -> dict[str, float | None]:
        """Accuracy of each group."""
        plain = [None if math.isnan(v) else v for v in self.rates.tolist()]
        return dict(zip(self.tally.names, plain, strict=True))

    @property
    def sizes(self) -> dict[str, int]:
        """Samples of each group."""
        return dict(zip(self.tally.names, self.tally.sizes.tolist(), strict=True))

    @property
    def intervals(self) -> Intervals:
        """Wilson interval of each accuracy."""
        return self._named(wilson(self.tally.hits, self.tally.sizes, self.confidence))

    @property
    def exact_intervals(self) -> Intervals:
        """Exact (Clopper-Pearson) interval of each accuracy."""
        return self._named(exact(self.tally.hits, self.tally.sizes, self.confidence))

    @property
    def simultaneous_intervals(self) -> Intervals:
        """Exact intervals that hold for all groups at once."""
        _, hits, sizes, overlapping, _ = self.tally
        return self._named(simultaneous(hits, sizes, self.confidence, overlapping=overlapping))

    @property
    def worst(self) -> float:
        """The lowest accuracy."""
        return float(self._seen.min())

    @property
    def worst_group(self) -> str:
        """Name of the group with the lowest accuracy; the first one where several are equal."""
        return self.names_at(self.worst)[0]

    @property
    def worst_interval(self) -> tuple[float, float]:
        """Interval for the truly worst one, which accounts for choosing the minimum."""
        _, hits, sizes, overlapping, _ = self.tally
        low, high = worst_interval(hits, sizes, self.confidence, overlapping=overlapping)
        return float(low), float(high)

    @cached_property
    def expected_worst_if_equal(self) -> ExpectedWorst:
        """What the worst would show if all were at the overall accuracy.

        Where groups overlap, their counts move together, and the worst is expected a little higher.
        """
        _, hits, sizes, *_ = self.tally
        return expected_worst(sizes, float(hits.sum() / sizes.sum()))

    @property
    def equal_p_value(self) -> float:
        """Chance that equal groups show a worst as bad as this one; approximate.

        Where groups overlap it is too large, never too small.
        """
        return equal_classes_p_value(self.tally.hits, self.tally.sizes)

    @property
    def best(self) -> float:
        """The highest accuracy."""
        return float(self._seen.max())

    @property
    def best_group(self) -> str:
        """Name of the group with the highest accuracy; the first one where several are equal."""
        return self.names_at(self.best)[0]

    def names_at(self, rate: float) -> tuple[str, ...]:
        """Every group at this very rate: many may share a worst of 0, or a best of 1."""
        return tuple(self.tally.names[k] for k in np.flatnonzero(self.rates == rate))

    @property
    def spread(self) -> float:
        """Population standard deviation of the accuracies."""
        return float(self._seen.std())

    @property
    def gap(self) -> float:
        """Best minus worst."""
        return self.best - self.worst

    def tail(self, share: float = 0.1) -> Tail:
        """Mean accuracy of the worst `share` of all, at least one, with their names."""
        if not 0 < share <= 1:
            raise ClasswiseError(f"tail({share}): give a share of the classes between 0 and 1")
        present = np.flatnonzero(~np.isnan(self.rates))
        count = max(1, round(share * len(present)))
        chosen = present[np.argsort(self.rates[present], kind="stable")][:count]
        return Tail(float(self.rates[chosen].mean()), tuple(self.tally.names[k] for k in chosen))

    # Fairlearn's names for the same things; `by_group` is one of them.

    def group_min(self) -> float:
        """Alias of `worst`."""
        return self.worst

    def group_max(self) -> float:
        """Alias of `best`."""
        return self.best

    def difference(self) -> float:
        """Alias of `gap`."""
        return self.gap

    def ratio(self) -> float:
        """Worst over best; 1 where the best is at 0 too."""
        return self.worst / self.best if self.best else 1.0

    @property
    def _seen(self) -> Rates:
        """Accuracies of the groups that have samples."""
        if not self.tally.sizes.any():
            raise ClasswiseError("none of the audited samples is in a group, so none is the worst")
        return self.rates[self.tally.sizes > 0]

    def _named(self, ends: tuple[Rates, Rates]) -> Intervals:
        pairs = zip(ends[0].tolist(), ends[1].tolist(), strict=True)
        return {
            name: None if math.isnan(pair[0]) else pair
            for name, pair in zip(self.tally.names, pairs, strict=True)
        }


@dataclass(frozen=True)
class GroupReport(RatedGroups):
    """The groups of one grouping under one condition.

    >>> seen = Tally(("front", "rear"), np.array([9, 4]), np.array([10, 8]))
    >>> found = GroupReport("camera", "clean", seen)
    >>> found.worst_group, found.worst, found.by_group["front"]
    ('rear', 0.5, 0.9)
    """

    grouping: str
    condition: str
    counted: Tally
    level: float = 0.95

    @property
    def tally(self) -> Tally:
        """What was counted."""
        return self.counted

    @property
    def confidence(self) -> float:
        """Of all intervals."""
        return self.level

    @property
    def error_ratios(self) -> dict[str, float | None] | None:
        """Error of each group over that of all images that were looked at; None without those.

        ImageNet-X calls this the error ratio of a factor: above 1, images with it are harder.
        """
        if ANNOTATED not in self.tally.names:
            return None
        rates = self.by_group
        base = rates[ANNOTATED]
        return {
            name: None if rate is None or base is None or base == 1 else (1 - rate) / (1 - base)
            for name, rate in rates.items()
        }
