"""How the worst class changed between two models, whichever classes are worst."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from classwise.errors import ClasswiseError
from classwise.statistics.exact_change import surely_below, upper_bound
from classwise.statistics.intervals import Rates, check_level, exact
from classwise.statistics.paired import paired_interval

Mask = npt.NDArray[np.bool_]
_PAIRED, _CHOICE = 1 / 4, 1 / 8  # shares of the error: two of the first, four of the second


def worst_change_interval(
    sizes: npt.ArrayLike,
    hits: npt.ArrayLike,
    lost: npt.ArrayLike,
    won: npt.ArrayLike,
    level: float = 0.95,
) -> tuple[Rates, Rates]:
    """Interval for D = min a′ − min a, the change of the worst class, right at every truth.

    Let w be the class that is truly worst before and v the one that is truly worst after: fixed,
    though unknown. Then Δ_v ≤ D ≤ Δ_w, since a′_v ≤ a′_w and a_w ≤ a_v. Hence

    high = max {up_k: k may be w},    low = min {down_k: k may be v},

    with bounds of Δ_k that are wrong with chance α/4: only those of w and v must hold, so the
    number of classes costs nothing here. k may be w if low_k ≤ min_j high_j, the exact bounds of
    a: wrong with chance α/8 for low_w, and α/8K for each high_j; likewise v with a′. With these
    bounds also min low′ − min high ≤ D ≤ min high′ − min low, which costs nothing more. The shares
    add up to α = 1 − level, and nothing is said of how classes depend on each other: groups may
    overlap. Of a single class D is Δ, and either bound has α/2. Classes lie on the last axis; one
    without images takes no part.

    >>> low, high = worst_change_interval([100, 100], [50, 60], [0, 0], [0, 0])
    >>> bool(low < 0 < high)
    True
    """
    check_level(level)
    n, h, b, c = (np.asarray(part, np.int64) for part in (sizes, hits, lost, won))
    n = np.broadcast_to(n, h.shape)
    if not np.all((n > 0).any(-1)):
        raise ClasswiseError("no class has images, so there is no worst class")
    if np.all((n > 0).sum(-1) == 1):
        half = (1 - level) / 2
        return -_greatest_bound(c, b, n, n > 0, half), _greatest_bound(b, c, n, n > 0, half)
    may_be_first, first_low, first_high = _worst_ones(h, n, _CHOICE * (1 - level))
    may_be_second, low, high = _worst_ones(h + c - b, n, _CHOICE * (1 - level))
    tail = _PAIRED * (1 - level)
    return (
        np.maximum(low - first_high, -_greatest_bound(c, b, n, may_be_second, tail)),
        np.minimum(high - first_low, _greatest_bound(b, c, n, may_be_first, tail)),
    )


def _worst_ones(
    hits: npt.NDArray[np.int64], n: npt.NDArray[np.int64], tail: float
) -> tuple[Mask, Rates, Rates]:
    """Classes that may truly be worst, and the interval of the worst accuracy."""
    count = int((n > 0).sum(-1).max())
    low, high = exact(hits, n, 1 - 2 * tail)[0], exact(hits, n, 1 - 2 * tail / count)[1]
    least = np.nanmin(high, -1)
    return low <= least[..., None], np.nanmin(low, -1), least


def _greatest_bound(
    b: npt.NDArray[np.int64],
    c: npt.NDArray[np.int64],
    n: npt.NDArray[np.int64],
    chosen: Mask,
    tail: float,
) -> Rates:
    """The greatest upper bound of the chosen classes' changes.

    A bound takes a search, a comparison with a value does not. So one bound is found, of the class
    whose score interval reaches highest, and then those of the classes not surely below it.
    """

    def bounds(asked: Mask) -> Rates:
        return upper_bound(b * asked, c * asked, n * asked, tail)

    guess = np.where(chosen, paired_interval(b, c, n, 1 - 2 * tail)[1], -np.inf)
    first = np.zeros_like(chosen)
    np.put_along_axis(first, guess.argmax(-1)[..., None], True, -1)
    best = np.nanmax(bounds(first), -1, keepdims=True)
    others = chosen & ~first & ~surely_below(b, c, n, best, tail)
    greatest: Rates = np.fmax(best, bounds(others)).max(-1)
    return greatest
