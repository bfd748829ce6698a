"""Tests and intervals for two models that saw the same images.

`lost` images only the first model had right, `won` images only the second.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from classwise.statistics.intervals import Rates, check_level, worst_interval


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


def worst_change_interval(
    sizes: npt.ArrayLike,
    hits: npt.ArrayLike,
    lost: npt.ArrayLike,
    won: npt.ArrayLike,
    level: float = 0.95,
    *,
    overlapping: bool = False,
) -> tuple[float, float]:
    """Interval for the change of the worst class that chance in choosing it cannot fool.

    [low′ − high, high′ − low] from the intervals of both worst classes, cut with
    [min_k Δ_k, max_k Δ_k] from the paired intervals of all classes: min a′ = min (a + Δ) lies
    between min a + min Δ and min a + max Δ. The error is shared out over all that is used, so
    that only the two worst ones must know whether groups are `overlapping`.

    >>> low, high = worst_change_interval([100, 100], [50, 60], [0, 0], [0, 0])
    >>> low < 0 < high
    True
    """
    check_level(level)
    n, h, b, c = (np.asarray(part, np.int64) for part in (sizes, hits, lost, won))
    quarter = 1 - (1 - level) / 4  # each worst class; the paired intervals have the other half
    (first_low, first_high), (low, high) = (
        worst_interval(right, n, quarter, overlapping=overlapping) for right in (h, h + c - b)
    )
    share = (1 - level) / 2 / max(int((n > 0).sum()), 1)
    down, up = paired_interval(b, c, n, 1 - share)
    return (
        max(float(low - first_high), float(np.nanmin(down))),
        min(float(high - first_low), float(np.nanmax(up))),
    )
