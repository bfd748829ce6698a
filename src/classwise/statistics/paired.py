"""Tests and intervals for two models that saw the same images.

`lost` images only the first model had right, `won` images only the second.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from classwise.statistics.intervals import Rates, check_level


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

    At Δ = 0 this is McNemar's test without its exactness; nan where there is no image. What must
    never be wrong too often stands on `exact_change` instead.

    >>> low, high = paired_interval([2], [10], [100])
    >>> round(float(low[0]), 3), round(float(high[0]), 3)
    (0.014, 0.158)
    """
    check_level(level)
    b, c, n = np.broadcast_arrays(*(np.asarray(part, np.float64) for part in (lost, won, sizes)))
    z = float(stats.norm.ppf((1 + level) / 2))
    middle = np.divide(c - b, n, out=np.full(n.shape, np.nan), where=n > 0)

    def outside(delta: Rates) -> npt.NDArray[np.bool_]:
        beyond, variance = score(b, c, n, delta)
        found: npt.NDArray[np.bool_] = beyond**2 > z**2 * variance
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


def score(b: Rates, c: Rates, n: Rates, delta: Rates) -> tuple[Rates, Rates]:
    """What is seen beyond a change of `delta`, and its variance at the likeliest such truth.

    won − lost − nΔ and n(2q + Δ(1 − Δ)), q as in `paired_interval`
    """
    linear = delta * (2 * n + b - c) - b - c
    constant = -b * delta * (1 - delta)
    root = np.sqrt(np.maximum(linear**2 - 8 * n * constant, 0)) - linear
    q = np.divide(root, 4 * n, out=np.zeros(root.shape), where=n > 0)
    return c - b - n * delta, np.maximum(n * (2 * q + delta * (1 - delta)), 0)
