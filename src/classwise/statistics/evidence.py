"""Evidence about class accuracies that may be looked at after every batch.

A class has N images, of which an unknown number H would be right in the full audit. Its images
are judged in random order, without returning any; after t of them, s were right. The chance of
what was seen, had H been the truth, is

    L(H) = H(H−1)…(H−s+1) · (N−H)(N−H−1)…(N−H−f+1) / (N(N−1)…(N−t+1)),   f = t − s.

For weights w on some totals, E = Σ w(H)·L(H) / L(h) is a martingale with mean 1 if h is the true
total: every term L(H)/L(h) is a likelihood ratio. By Ville's inequality P(E ever reaches 1/α) ≤ α:
one may look after every image, stop whenever one likes, and be wrong with chance α at most.

If all totals in the mixture lie below h, the same holds for every true total above h: a step
multiplies L(H)/L(h) by (H−s)/(h−s) ≤ 1 when right, by (N−H−f)/(N−h−f) ≥ 1 when wrong, so being
right more often can only lower its mean. A one-sided question thus costs one test, at the bar.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import special

Whole: TypeAlias = npt.NDArray[np.int64]
Rates: TypeAlias = npt.NDArray[np.float64]


def evidence(
    hits: npt.ArrayLike, seen: npt.ArrayLike, sizes: npt.ArrayLike, bar: npt.ArrayLike
) -> tuple[Rates, Rates]:
    """Log evidence that fewer than `bar` images of a class are right, and that `bar` or more are.

    log E_below = log mean_{H < bar} L(H) − log L(bar)
    log E_meets = log mean_{H ≥ bar} L(H) − log L(bar − 1)

    All arguments are counts and broadcast; +∞ is proof, as when every image has been judged.

    >>> below, meets = evidence([0, 10, 5], [10, 10, 10], [100, 100, 10], [20, 20, 5])
    >>> (below > 0).tolist(), (meets > 0).tolist(), float(meets[2])
    ([True, False, False], [False, True, True], inf)
    """
    s, t, n, h = np.broadcast_arrays(
        *(np.asarray(part, np.int64) for part in (hits, seen, sizes, bar))
    )
    totals, likelihood = _log_likelihood(s, t, n)
    low, high = totals < h[..., None], (totals >= h[..., None]) & (totals <= n[..., None])
    at_bar = np.take_along_axis(likelihood, np.minimum(h, n)[..., None], -1)[..., 0]
    under = np.take_along_axis(likelihood, np.maximum(h - 1, 0)[..., None], -1)[..., 0]
    below = _against(_log_mean(likelihood, low), np.where(h > n, -np.inf, at_bar))
    meets = _against(_log_mean(likelihood, high), np.where(h <= 0, -np.inf, under))
    return below, meets


def confidence_sequence(
    hits: npt.ArrayLike, seen: npt.ArrayLike, sizes: npt.ArrayLike, level: float = 0.95
) -> tuple[Rates, Rates]:
    """Interval for what the full audit would show, right at all times at once with chance `level`.

    all H with mean_{H'} L(H') / L(H) < 1/(1 − level), divided by N; nan for an empty class

    >>> low, high = confidence_sequence([0, 5, 3], [0, 10, 4], [10, 10, 100])
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([0.0, 0.5, 0.16], [1.0, 0.5, 0.99])
    """
    s, t, n = np.broadcast_arrays(*(np.asarray(part, np.int64) for part in (hits, seen, sizes)))
    totals, likelihood = _log_likelihood(s, t, n)
    mean = _log_mean(likelihood, totals <= n[..., None])[..., None]
    inside = likelihood > mean + np.log1p(-level)
    low = inside.argmax(-1)
    high = inside.shape[-1] - 1 - inside[..., ::-1].argmax(-1)
    with np.errstate(invalid="ignore"):
        return low / np.where(n > 0, n, np.nan), high / np.where(n > 0, n, np.nan)


def _log_likelihood(s: Whole, t: Whole, n: Whole) -> tuple[Whole, Rates]:
    """Totals 0 … max N on a new last axis, and log L(H) up to a term without H."""
    factorial = special.gammaln(np.arange(int(n.max(initial=0)) + 2) + 1.0)
    totals = np.arange(int(n.max(initial=0)) + 1)
    hits, misses, size = s[..., None], (t - s)[..., None], n[..., None]
    possible = (totals >= hits) & (size - totals >= misses)
    right = factorial[totals] - factorial[np.maximum(totals - hits, 0)]
    left = np.maximum(size - totals, 0)
    wrong = factorial[left] - factorial[np.maximum(left - misses, 0)]
    return totals, np.where(possible, right + wrong, -np.inf)


def _log_mean(likelihood: Rates, chosen: npt.NDArray[np.bool_]) -> Rates:
    """Mean over the chosen totals, in logarithms; −∞ where there are none."""
    kept = np.where(chosen, likelihood, -np.inf)
    top = kept.max(-1, keepdims=True, initial=-np.inf)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(kept - safe).sum(-1)) + safe[..., 0]
    return np.asarray(total - np.log(np.maximum(chosen.sum(-1), 1)), np.float64)


def _against(mixture: Rates, null: Rates) -> Rates:
    """Log ratio; −∞ where the mixture is impossible, +∞ where only the null is."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isneginf(mixture), -np.inf, mixture - null)
