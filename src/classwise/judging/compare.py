"""Two models on the same images: which classes got better, which worse, which are undecided.

Both saw the same images, so they are compared image by image: only those on which they disagree
count. `first` is the model of before, `second` the one that is to be judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from classwise.errors import ClasswiseError
from classwise.judging.groups import CLASS, Grouping, of_classes
from classwise.record.rows import Predictions
from classwise.spelling import few_names
from classwise.statistics.intervals import Rates, check_level
from classwise.statistics.paired import holm, mcnemar, paired_interval
from classwise.statistics.worst_change import worst_change_interval

Whole = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Change(NamedTuple):
    """A difference in accuracy, second minus first, and its interval."""

    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """What changed from a first to a second model under one condition.

    Per class, in class order: `lost` images only the first had right, `won` images only the
    second had right, out of `sizes`. A class without images is nan and undecided. With another
    `grouping` than the classes, all of that is said of its groups, which `class_names` then names.
    """

    condition: str
    class_names: tuple[str, ...]
    sizes: Whole
    lost: Whole
    won: Whole
    hits: Whole  # of the first model
    overall: Change
    # by bootstrap: too narrow where several are nearly worst; groups that overlap have none
    drawn_worst: Change | None
    level: float = 0.95
    unpaired: int = 0  # samples that only one of the two was asked about
    grouping: str = CLASS
    images: int = 0  # that both were asked about

    @cached_property
    def worst(self) -> Change:
        """Change of the worst class, with an interval that is valid whichever classes are worst."""
        some = self.sizes > 0
        before, after = (
            (right[some] / self.sizes[some]).min()
            for right in (self.hits, self.hits + self.won - self.lost)
        )
        ends = worst_change_interval(self.sizes, self.hits, self.lost, self.won, self.level)
        return Change(float(after - before), *(float(end) for end in ends))

    @property
    def worst_sure(self) -> Change:
        """The same under the name that it had while `worst` was the bootstrap's."""
        return self.worst

    @property
    def by_class(self) -> Rates:
        """Difference of each class's accuracy, second minus first."""
        with np.errstate(invalid="ignore"):
            return (self.won - self.lost) / self.sizes

    @property
    def intervals(self) -> tuple[Rates, Rates]:
        """Paired score interval of each class's difference."""
        return paired_interval(self.lost, self.won, self.sizes, self.level)

    @property
    def p_values(self) -> Rates:
        """McNemar's exact p-value of each class, before correction."""
        return np.where(self.sizes > 0, mcnemar(self.lost, self.won), np.nan)

    @property
    def corrected(self) -> Rates:
        """The same after Holm's correction for looking at all classes."""
        return holm(self.p_values)

    @property
    def better(self) -> tuple[str, ...]:
        """Classes that the second model has surely improved."""
        return self._named(self.won > self.lost)

    @property
    def worse(self) -> tuple[str, ...]:
        """Classes that the second model has surely harmed."""
        return self._named(self.won < self.lost)

    @property
    def undecided(self) -> tuple[str, ...]:
        """All other classes."""
        decided = {*self.better, *self.worse}
        return tuple(name for name in self.class_names if name not in decided)

    @property
    def verdict(self) -> str:
        """One sentence, such as `3 classes better, 1 worse, 6 undecided`."""
        better, worse = len(self.better), len(self.worse)
        one, several = ("class", "classes") if self.grouping == CLASS else ("group", "groups")
        noun = one if better == 1 else several
        noun += f" of {self.grouping}" if self.grouping != CLASS else ""
        return f"{better} {noun} better, {worse} worse, {len(self.undecided)} undecided"

    def __str__(self) -> str:
        parts = [f"{self.condition} on {self.images} images: {self.verdict}"]
        worst = "worst class" if self.grouping == CLASS else "worst group"
        for word, change in (("overall", self.overall), (worst, self.worst)):
            parts.append(
                f"{word} {100 * change.difference:+.1f} points "
                f"({100 * self.level:g} % interval {100 * change.low:+.1f} to "
                f"{100 * change.high:+.1f})"
            )
        for word, names in (("better", self.better), ("worse", self.worse)):
            if names:
                parts.append(f"{word}: {few_names(names, 10)}")
        if self.unpaired:
            parts.append(f"{self.unpaired} images were seen by one model only and left out")
        return "; ".join(parts)

    def _named(self, direction: npt.NDArray[np.bool_]) -> tuple[str, ...]:
        sure = direction & (np.nan_to_num(self.corrected, nan=1.0) <= 1 - self.level)
        return tuple(self.class_names[k] for k in np.flatnonzero(sure))


def diff(
    first: Predictions,
    second: Predictions,
    class_names: Sequence[str],
    *,
    grouping: Grouping | None = None,
    level: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> Difference:
    """Compare two models on the images that both were asked about, by class or another grouping.

    The overall change is that of all these images, in a group or not. Groups that overlap cannot
    be drawn apart, so there is no bootstrap of their worst one: `drawn_worst` is None there.

    >>> def told(*predicted):
    ...     n = len(predicted)
    ...     same = np.zeros(n)
    ...     return Predictions("clean", np.arange(n), np.zeros(n, int), np.array(predicted),
    ...                        same.astype(np.float32), same, same.astype(np.int32),
    ...                        np.full(n, None))
    >>> found = diff(told(*[1] * 8, 0, 0), told(*[0] * 10), ["cat"])
    >>> found.verdict, found.overall.difference
    ('1 class better, 0 worse, 0 undecided', 0.8)
    """
    check_level(level)
    seen = _seen_by_both(first, second)
    classes = of_classes(class_names)[CLASS]
    groups = grouping or classes
    sizes, hits, lost, won = counts = _counted(groups, *seen)
    if not sizes.any():
        raise ClasswiseError(f"none of the images that both saw is in a group of {groups.name!r}")
    facts: dict[str, Any] = {"level": level, "draws": draws, "seed": seed}
    overall, worst = bootstrap_changes(*_counted(classes, *seen), **facts)
    if groups is not classes and not groups.overlapping:
        _, worst = bootstrap_changes(*counts, **facts)
    return Difference(
        first.condition,
        groups.names,
        sizes,
        lost,
        won,
        hits,
        overall,
        None if groups.overlapping else worst,
        level,
        len(first.sample) + len(second.sample) - 2 * len(seen[0]),
        groups.name,
        len(seen[0]),
    )


def _seen_by_both(first: Predictions, second: Predictions) -> tuple[Whole, Whole, Mask, Mask]:
    """Samples that both were asked about, their labels, and whether each model had them right."""
    both, here, there = np.intersect1d(first.sample, second.sample, return_indices=True)
    if not len(both):
        raise ClasswiseError("the two audits share no image; audit both on the same data")
    labels = first.label[here]
    if not np.array_equal(labels, second.label[there]):
        raise ClasswiseError(
            "the two audits give other labels to the same sample numbers: they are of different "
            "data; audit both on the same split"
        )
    return both, labels, first.correct[here], second.correct[there]


def _counted(
    groups: Grouping, both: Whole, labels: Whole, right: Mask, now: Mask
) -> tuple[Whole, Whole, Whole, Whole]:
    """Sizes of the groups, what the first model had right, and what the second lost and won."""
    every, lost, won = np.ones_like(right), right & ~now, ~right & now
    sizes, hits, *moved = (groups.count(both[m], labels[m]) for m in (every, right, lost, won))
    return sizes, hits, moved[0], moved[1]


def bootstrap_changes(
    sizes: Whole,
    hits: Whole,
    lost: Whole,
    won: Whole,
    *,
    level: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> tuple[Change, Change]:
    """Overall and worst-class change, with paired percentile bootstrap intervals.

    Δ = Σ_k (won_k − lost_k)/N and min_k a'_k − min_k a_k; resampled within each class, where an
    image is drawn together with both verdicts: (lost, won, both right, both wrong) ~ Multinomial

    The worst class is chosen by its look, which the bootstrap cannot undo: where equal classes
    became one bad class, it held the truth in 64 % of the cases. Use `worst_change_interval`.

    >>> one = lambda *values: np.array(values)
    >>> whole, worst = bootstrap_changes(one(10, 10), one(5, 9), one(0, 0), one(2, 0))
    >>> round(whole.difference, 2), round(worst.difference, 2)
    (0.1, 0.2)
    """
    present = sizes > 0
    n, h, b, c = (part[present].astype(np.float64) for part in (sizes, hits, lost, won))
    if not len(n):
        raise ClasswiseError("no class has images, so there is nothing to compare")
    random = np.random.default_rng([seed, 0x0D1FF])
    changes = np.empty((2, draws))
    # A block at a time: 1000 classes and 10 000 draws would not fit.
    block = max(1, 2_000_000 // len(n))
    for begin in range(0, draws, block):
        end = min(draws, begin + block)
        shape = (end - begin, len(n))
        total = n.astype(np.int64)
        only_first = random.binomial(total, b / n, shape)
        only_second = random.binomial(total - only_first, _share(c, n - b), shape)
        rest = total - only_first - only_second
        before = (only_first + random.binomial(rest, _share(h - b, n - b - c), shape)) / n
        gained = (only_second - only_first) / n
        changes[0, begin:end] = gained @ n / n.sum()
        changes[1, begin:end] = (before + gained).min(1) - before.min(1)
    tails = (1 - level) / 2, (1 + level) / 2
    low, high = np.quantile(changes, tails, axis=1)
    overall = float((c - b).sum() / n.sum())
    worst = float(((h + c - b) / n).min() - (h / n).min())
    return Change(overall, float(low[0]), float(high[0])), Change(
        worst, float(low[1]), float(high[1])
    )


def _share(part: Rates, whole: Rates) -> Rates:
    """A conditional probability; 0 where its condition never happens."""
    return np.clip(np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0), 0, 1)
