"""What chance alone does to the worst class, and how many samples a claim about it needs."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from classwise.errors import ClasswiseError
from classwise.statistics.intervals import Rates, check_level, exact


class ExpectedWorst(NamedTuple):
    """The worst class that equal classes would show: its mean and where it mostly falls."""

    mean: float
    low: float
    high: float


def expected_worst(sizes: npt.ArrayLike, rate: float, *, share: float = 0.9) -> ExpectedWorst:
    """Find what the worst class would show if all classes were equally good.

    E[min_k X_k/n_k] = ∫₀¹ Π_k P(X_k > t·n_k) dt with X_k ~ Binomial(n_k, rate)

    `low` and `high` hold the middle `share` (5 % to 95 %). Exact for any mix of sizes.

    >>> round(expected_worst([1000] * 10, 0.5).mean, 3), round(expected_worst([2], 0.5).mean, 3)
    (0.476, 0.5)
    >>> round(expected_worst([1, 1], 0.5).mean, 3)  # both right: one case in four
    0.25
    """
    if not 0 < share < 1:
        raise ClasswiseError(f"share is {share}; give the part of all draws to hold, such as 0.9")
    values, survival = _law_of_the_worst(_present(sizes), _checked_rate(rate))
    mean = float(survival[:-1] @ np.diff(values))
    low, high = (
        float(values[np.argmax(1 - survival >= below)])
        for below in ((1 - share) / 2, (1 + share) / 2)
    )
    return ExpectedWorst(mean, low, high)


def equal_classes_p_value(hits: npt.ArrayLike, sizes: npt.ArrayLike) -> float:
    """Probability that equal classes show a worst class as bad as the one observed, or worse.

    1 − Π_k P(X_k > w·n_k), X_k ~ Binomial(n_k, p̂), w the worst observed rate, p̂ the pooled one

    Approximate, because the common rate is not known but estimated; see `docs/statistics.md`.

    >>> round(equal_classes_p_value([0, 1], [1, 1]), 3)  # both right in one case of four
    0.75
    >>> equal_classes_p_value([10, 50, 50], [100, 100, 100]) < 1e-5
    True
    """
    all_sizes = np.asarray(sizes, dtype=np.int64)
    all_hits = np.asarray(hits, dtype=np.int64)
    if all_hits.shape != all_sizes.shape or np.any((all_hits < 0) | (all_hits > all_sizes)):
        raise ClasswiseError("hits must lie between 0 and the number of samples of their class")
    n = _present(all_sizes)
    h = all_hits[all_sizes > 0]
    worst = int(np.argmin(h / n))
    # Whole numbers, since w·n_k in floating point may fall just short of a count.
    at_most = h[worst] * n // n[worst]
    survival = _survival(at_most, n, float(h.sum() / n.sum()))
    # Of many near-certain factors, the logarithm keeps what 1 − product would round away.
    with np.errstate(divide="ignore"):
        return float(-np.expm1(np.log(survival).sum()))


def needed_per_class(
    num_classes: int, rate: float, *, half_width: float = 0.05, level: float = 0.95
) -> int:
    """Count the samples each class needs for a claim about the worst of all classes.

    smallest n with (high − low)/2 ≤ half_width, for the exact interval of n·rate hits out of n
    at level^(1/K): the simultaneous interval over K classes

    >>> needed_per_class(10, 0.5), needed_per_class(100, 0.25)
    (800, 920)
    """
    if num_classes < 1:
        raise ClasswiseError(f"num_classes is {num_classes}; there must be at least one class")
    if not 0 < half_width < 0.5:
        raise ClasswiseError(f"half_width is {half_width}; give a share between 0 and 0.5")
    check_level(level)
    _checked_rate(rate)
    tail = -math.expm1(math.log(level) / num_classes) / 2
    # Hoeffding: each end is within √(log(1/tail)/2n) of the rate, so this many always suffice.
    enough = math.ceil(math.log(1 / tail) / half_width**2)
    return 1 + bisect_left(
        range(1, enough + 1),
        True,
        key=lambda n: margin_of_error(n, rate, num_classes, level) <= half_width,
    )


def margin_of_error(n: int, rate: float, num_classes: int, level: float = 0.95) -> float:
    """Half the width of one class's interval when all K classes are to hold at once.

    >>> round(margin_of_error(1000, 0.5, 10), 3), round(margin_of_error(100, 0.5, 10), 3)
    (0.045, 0.142)
    """
    low, high = exact(n * rate, n, level ** (1 / num_classes))
    return float(high - low) / 2


def worst_class_warning(
    sizes: npt.ArrayLike,
    rate: float,
    *,
    worst: float | None = None,
    half_width: float = 0.05,
    level: float = 0.95,
) -> str | None:
    """Say that there are too few samples for a claim about the worst class, and how many it needs.

    Warns when the smallest class has fewer than `needed_per_class`: its interval, simultaneous
    over all classes, is then wider than ± `half_width`. The interval is taken at the average
    `rate` or at the `worst` one, whichever is nearer to one half, where it is wider. None means
    that the claim can stand.

    >>> print(worst_class_warning([100] * 10, 0.5))
    too few samples for a worst-class claim: with 100 per class, each of 10 classes is known to \
±14.2 points (95% sure of all at once), and equal classes at 50.0% would show a worst of 42.3%; \
±5 points at this accuracy need 800 per class
    >>> worst_class_warning([1000] * 10, 0.5)
    """
    n = _present(sizes)
    at = min((rate, rate if worst is None else worst), key=lambda value: abs(value - 0.5))
    needed = needed_per_class(len(n), at, half_width=half_width, level=level)
    fewest = int(n.min())
    if fewest >= needed:
        return None
    if fewest == n.max():
        known = f"with {fewest} per class, each of {len(n)} classes is known to"
    else:
        known = (
            f"{int((n < needed).sum())} of {len(n)} classes have fewer than {needed}; the smallest "
            f"has {fewest} and is known to"
        )
    return (
        f"too few samples for a worst-class claim: {known} {_known_to(fewest, at, len(n), level)} "
        f"({100 * level:g}% sure of all at once), and equal classes at {rate:.1%} would show a "
        f"worst of {expected_worst(n, rate).mean:.1%}; ±{100 * half_width:g} points at this "
        f"accuracy need {needed} per class"
    )


def _known_to(n: int, rate: float, num_classes: int, level: float) -> str:
    """±6.2 points; at 0 % and 100 %, where half a width is no ±, both ends."""
    if 0 < rate < 1:
        return f"±{100 * margin_of_error(n, rate, num_classes, level):.1f} points"
    low, high = exact(n * rate, n, level ** (1 / num_classes))
    return f"lie between {float(low):.1%} and {float(high):.1%}"


class OverSeeds(NamedTuple):
    """Mean and sample deviation over runs; the deviation of a single run is nan."""

    mean: float
    deviation: float
    runs: int

    def __format__(self, spec: str) -> str:
        spec = spec or ".3f"
        spread = "" if math.isnan(self.deviation) else f" ± {format(self.deviation, spec)}"
        return f"{format(self.mean, spec)}{spread} (n = {self.runs})"

    def __str__(self) -> str:
        return format(self)


def over_seeds(values: npt.ArrayLike) -> OverSeeds:
    """Average a figure over runs with different seeds.

    mean ± √(Σ(v − mean)² / (n − 1)), the sample deviation

    >>> print(over_seeds([0.1, 0.2, 0.3]))
    0.200 ± 0.100 (n = 3)
    >>> f"{over_seeds([0.476]):.1%}"
    '47.6% (n = 1)'
    """
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not len(found) or not np.isfinite(found).all():
        raise ClasswiseError(f"over_seeds needs one number for each run; got {values!r}")
    deviation = float(found.std(ddof=1)) if len(found) > 1 else math.nan
    return OverSeeds(float(found.mean()), deviation, len(found))


def _law_of_the_worst(n: npt.NDArray[np.int64], rate: float) -> tuple[Rates, Rates]:
    """Values the worst class can take, ascending, and P(worst > value).

    The log of the product of survivals steps down wherever some class's does; so all steps of
    all classes are laid on one axis and summed, with equal sizes taken together.
    """
    kinds, repeats = np.unique(n, return_counts=True)
    size = np.repeat(kinds, kinds + 1)
    hits = np.arange(len(size)) - np.repeat(np.cumsum(kinds + 1) - kinds - 1, kinds + 1)
    with np.errstate(divide="ignore"):
        # Beyond e^−745 floats are 0; a finite floor keeps the sums free of ∞ − ∞.
        log_survival = np.maximum(np.log(_survival(hits, size, rate)), -1e3)
    before = np.where(hits > 0, np.roll(log_survival, 1), 0.0)
    step = (log_survival - before) * np.repeat(repeats, kinds + 1)
    values = hits / size
    order = np.argsort(values, kind="stable")
    return values[order], np.exp(np.cumsum(step[order]))


def _survival(hits: npt.NDArray[np.int64], n: npt.NDArray[np.int64], rate: float) -> Rates:
    """P(X > hits) for X ~ Binomial(n, rate), as an incomplete beta function."""
    found = np.asarray(special.betainc(hits + 1.0, np.maximum(n - hits, 1), rate), np.float64)
    return np.where(hits < n, found, 0.0)


def _present(sizes: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Sizes of the classes that have samples."""
    n = np.asarray(sizes, dtype=np.int64)
    if n.ndim != 1 or np.any(n < 0):
        raise ClasswiseError("sizes must be one whole number for each class, 0 or more")
    if not n.any():
        raise ClasswiseError("no class has samples, so there is no worst class")
    return n[n > 0]


def _checked_rate(rate: float) -> float:
    if not 0 <= rate <= 1:
        raise ClasswiseError(f"rate is {rate}; rates lie between 0 and 1 (0.5, not 50)")
    return rate
