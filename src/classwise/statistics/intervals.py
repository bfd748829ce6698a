"""Honest intervals for rates counted from few samples.

Classes lie on the last axis; leading axes, if any, are repetitions. A class without samples has
no interval (nan) and takes no part in what is said about all classes or the worst one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from classwise.errors import ClasswiseError

Rates = npt.NDArray[np.float64]


def wilson(hits: npt.ArrayLike, samples: npt.ArrayLike, level: float = 0.95) -> tuple[Rates, Rates]:
    """Wilson score interval of each rate; nan where there is no sample.

    centre (p + z²/2n) / (1 + z²/n), half width z·√(p(1−p)/n + z²/4n²) / (1 + z²/n)

    Covers `level` on the average over rates, a little more or less at single ones.

    >>> low, high = wilson([5], [10])
    >>> round(float(low[0]), 4), round(float(high[0]), 4)
    (0.2366, 0.7634)
    """
    h, n = _counts(hits, samples, level)
    rate = h / n
    z2 = float(stats.norm.ppf((1 + level) / 2)) ** 2
    centre = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = np.sqrt(z2 * (rate * (1 - rate) / n + z2 / (4 * n**2))) / (1 + z2 / n)
    # Rounding must not push the ends past what was counted.
    return np.minimum(np.clip(centre - half, 0, 1), rate), np.maximum(
        np.clip(centre + half, 0, 1), rate
    )


def exact(hits: npt.ArrayLike, samples: npt.ArrayLike, level: float = 0.95) -> tuple[Rates, Rates]:
    """Exact (Clopper-Pearson) interval of each rate; covers at least `level` at every rate.

    P(X ≥ h; n, low) = (1 − level)/2 = P(X ≤ h; n, high)

    >>> low, high = exact([0, 5], [10, 10])
    >>> low.round(4).tolist(), high.round(4).tolist()
    ([0.0, 0.1871], [0.3085, 0.8129])
    """
    h, n = _counts(hits, samples, level)
    tail = np.float64((1 - level) / 2)
    return _lower(h, n, tail), _upper(h, n, tail)


def lower_bound(hits: npt.ArrayLike, samples: npt.ArrayLike, tail: float) -> Rates:
    """Exact one-sided lower bound of each rate: P(X ≥ h; n, low) = tail.

    >>> lower_bound([10, 0], [10, 10], 0.001).round(4).tolist()
    [0.5012, 0.0]
    """
    return _lower(*_counts(hits, samples, 1 - tail), np.float64(tail))


def simultaneous(
    hits: npt.ArrayLike, samples: npt.ArrayLike, level: float = 0.95, *, overlapping: bool = False
) -> tuple[Rates, Rates]:
    """Exact intervals that hold for all K classes at once with probability `level`.

    each at level^(1/K) (Šidák), so that Π_k P(low_k ≤ p_k ≤ high_k) ≥ level

    Classes are counted on different images, hence independent for a fixed model. Groups that are
    `overlapping` share images: each is then at 1 − (1 − level)/K (Bonferroni), which asks nothing.

    >>> low, high = simultaneous([5, 5], [10, 10])
    >>> low.round(4).tolist(), high.round(4).tolist()
    ([0.159, 0.159], [0.841, 0.841])
    """
    h, n = _counts(hits, samples, level)
    tail = _shared_tail(n, level, overlapping)
    return _lower(h, n, tail), _upper(h, n, tail)


def worst_interval(
    hits: npt.ArrayLike, samples: npt.ArrayLike, level: float = 0.95, *, overlapping: bool = False
) -> tuple[Rates, Rates]:
    """Interval for the true accuracy of the worst class, whichever class that is.

    [min_k low_k, min_k high_k], with upper tail t = (1 − level^(1/K))/2 in each class
    and lower tail s = 1 − t − level/(1−t)^(K−1)

    The smallest of K observed rates is too low on the average, so only the upper end needs K
    classes to hold at once. Let w be the truly worst class, fixed though unknown. Then
    min low_k ≤ low_w, and min high_k ≥ p_w as soon as high_k ≥ p_k for all k; therefore
    P(covered) ≥ P(low_w ≤ p_w ≤ high_w) · Π_{k≠w} P(p_k ≤ high_k) ≥ (1−s−t)·(1−t)^(K−1) = level.
    The upper end is the least upper end of `simultaneous`; for one class this is `exact`.
    For groups that are `overlapping` the product does not hold, but 1 − s − K·t does, without any
    assumption: t = (1 − level)/2K and s = 1 − level − K·t.

    >>> low, high = worst_interval([50] * 9 + [40], [100] * 10)
    >>> round(float(low), 4), round(float(high), 4)
    (0.3035, 0.5446)
    """
    h, n = _counts(hits, samples, level)
    count = (~np.isnan(n)).sum(axis=-1, keepdims=True)
    if not np.all(count):
        raise ClasswiseError("no class has samples, so there is no worst class")
    high_tail = _shared_tail(n, level, overlapping)
    low_tail = 1 - high_tail - level / (1 - high_tail) ** (count - 1)
    if overlapping:
        low_tail = 1 - level - count * high_tail
    return (
        np.nanmin(_lower(h, n, low_tail), axis=-1),
        np.nanmin(_upper(h, n, high_tail), axis=-1),
    )


def check_level(level: float) -> None:
    """Refuse a level that is no probability."""
    if not 0 < level < 1:
        raise ClasswiseError(f"level is {level}; give a probability such as 0.95")


def _shared_tail(n: Rates, level: float, overlapping: bool) -> Rates:
    """One tail of each class's interval when all classes are to hold at once."""
    count = np.maximum((~np.isnan(n)).sum(axis=-1, keepdims=True), 1)
    tail: Rates = -np.expm1(np.log(level) / count) / 2
    return (1 - level) / count / 2 if overlapping else tail


def _lower(h: Rates, n: Rates, tail: Rates | np.float64) -> Rates:
    """The rate at which `h` or more hits have probability `tail`; 0 for no hits."""
    inside = special.betaincinv(np.maximum(h, np.finfo(float).tiny), n - h + 1, tail)
    low: Rates = np.where(h > 0, inside, 0 * n)
    return low


def _upper(h: Rates, n: Rates, tail: Rates | np.float64) -> Rates:
    """The rate at which `h` or fewer hits have probability `tail`."""
    return 1 - _lower(n - h, n, tail)


def _counts(hits: npt.ArrayLike, samples: npt.ArrayLike, level: float) -> tuple[Rates, Rates]:
    """Hits and samples as floats of one shape, nan for no samples; refuses what no count can be."""
    check_level(level)
    h, n = np.broadcast_arrays(
        np.asarray(hits, dtype=np.float64), np.asarray(samples, dtype=np.float64)
    )
    if not np.all((h >= 0) & (h <= n)):
        raise ClasswiseError("hits must lie between 0 and the number of samples of their class")
    return np.where(n > 0, h, np.nan), np.where(n > 0, n, np.nan)
