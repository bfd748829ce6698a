"""Two models on the same images: which classes got better, which worse, which are undecided.

Both saw the same images, so they are compared image by image: only those on which they disagree
count. `first` is the model of before, `second` the one that is to be judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from classwise.auditing.intervals import Rates, check_level
from classwise.auditing.shards import Predictions
from classwise.errors import ClasswiseError

Whole = npt.NDArray[np.int64]


class Change(NamedTuple):
    """A difference in accuracy, second minus first, and its interval."""

    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """What changed from a first to a second model under one condition.

    Per class, in class order: `lost` images only the first had right, `won` images only the
    second had right, out of `sizes`. A class without images is nan and undecided.
    """

    condition: str
    class_names: tuple[str, ...]
    sizes: Whole
    lost: Whole
    won: Whole
    hits: Whole  # of the first model
    overall: Change
    worst: Change
    level: float = 0.95
    unpaired: int = 0  # samples that only one of the two was asked about

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
        noun = "class" if better == 1 else "classes"
        return f"{better} {noun} better, {worse} worse, {len(self.undecided)} undecided"

    def __str__(self) -> str:
        parts = [f"{self.condition}: {self.verdict}"]
        for word, change in (("overall", self.overall), ("worst class", self.worst)):
            parts.append(
                f"{word} {100 * change.difference:+.1f} points "
                f"({100 * self.level:g} % interval {100 * change.low:+.1f} to "
                f"{100 * change.high:+.1f})"
            )
        for word, names in (("better", self.better), ("worse", self.worse)):
            if names:
                parts.append(f"{word}: {', '.join(names)}")
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
    level: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> Difference:
    """Compare two models on the images that both were asked about.

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
    both, here, there = np.intersect1d(first.sample, second.sample, return_indices=True)
    if not len(both):
        raise ClasswiseError("the two audits share no image; audit both on the same data")
    labels = first.label[here]
    if not np.array_equal(labels, second.label[there]):
        raise ClasswiseError(
            "the two audits give other labels to the same sample numbers: they are of different "
            "data; audit both on the same split"
        )
    right, now = first.correct[here], second.correct[there]
    count = len(class_names)

    def per_class(mask: npt.NDArray[np.bool_]) -> Whole:
        return np.bincount(labels[mask], minlength=count).astype(np.int64)

    sizes = np.bincount(labels, minlength=count).astype(np.int64)
    lost, won, hits = per_class(right & ~now), per_class(~right & now), per_class(right)
    overall, worst = bootstrap_changes(sizes, hits, lost, won, level=level, draws=draws, seed=seed)
    return Difference(
        first.condition,
        tuple(class_names),
        sizes,
        lost,
        won,
        hits,
        overall,
        worst,
        level,
        len(first.sample) + len(second.sample) - 2 * len(both),
    )


def mcnemar(lost: npt.ArrayLike, won: npt.ArrayLike) -> Rates:
    """Exact p-value that a class is unchanged, from the images on which two models disagree.

    p = min(1, 2·P(X ≤ min(lost, won))), X ~ Binomial(lost + won, ½)

    >>> mcnemar([0, 3, 0], [5, 3, 0]).tolist()
    [0.0625, 1.0, 1.0]
    """
    b, c = np.asarray(lost, np.float64), np.asarray(won, np.float64)
    p: Rates = np.minimum(1.0, 2 * special.bdtr(np.minimum(b, c), (b + c).astype(np.int64), 0.5))
    return p


def holm(p_values: npt.ArrayLike) -> Rates:
    """Correct p-values for looking at all classes at once (Holm's step-down).

    p̃₍ᵢ₎ = max_{j ≤ i} min(1, (m − j + 1)·p₍ⱼ₎) for the p-values in ascending order; nan is left out

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")  # nan comes last
    left = np.maximum((~np.isnan(p)).sum() - np.arange(len(p)), 1)
    stepped = np.minimum(1.0, np.maximum.accumulate(p[order] * left))
    found = np.empty_like(p)
    found[order] = stepped
    return found


def paired_interval(
    lost: npt.ArrayLike, won: npt.ArrayLike, sizes: npt.ArrayLike, level: float = 0.95
) -> tuple[Rates, Rates]:
    """Interval for the change of a rate counted twice on the same images (Tango's score interval).

    all Δ with |won − lost − nΔ| ≤ z·√(n(2q + Δ(1 − Δ))), q the likeliest P(lost) given Δ, which
    solves 2n·q² + (Δ(2n + lost − won) − lost − won)·q − lost·Δ(1 − Δ) = 0

    At Δ = 0 this is McNemar's test without its exactness; nan where there is no image.

    >>> low, high = paired_interval([2], [10], [100])
    >>> round(float(low[0]), 3), round(float(high[0]), 3)
    (0.014, 0.158)
    """
    check_level(level)
    b, c, n = np.broadcast_arrays(*(np.asarray(part, np.float64) for part in (lost, won, sizes)))
    z = float(stats.norm.ppf((1 + level) / 2))
    middle = np.divide(c - b, n, out=np.full(n.shape, np.nan), where=n > 0)

    def outside(delta: Rates) -> npt.NDArray[np.bool_]:
        score = c - b - n * delta
        linear = delta * (2 * n + b - c) - b - c
        constant = -b * delta * (1 - delta)
        root = np.sqrt(np.maximum(linear**2 - 8 * n * constant, 0)) - linear
        q = np.divide(root, 4 * n, out=np.zeros(n.shape), where=n > 0)
        variance = n * (2 * q + delta * (1 - delta))
        found: npt.NDArray[np.bool_] = score**2 > z**2 * np.maximum(variance, 0)
        return found

    ends = []
    for limit in (-1.0, 1.0):
        inside, beyond = middle.copy(), np.full(n.shape, limit)
        for _ in range(60):  # halving: the interval's end to 2⁻⁶⁰
            half = (inside + beyond) / 2
            out = outside(half)
            inside, beyond = np.where(out, inside, half), np.where(out, half, beyond)
        ends.append(np.where(n > 0, inside, np.nan))
    return ends[0], ends[1]


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
