"""Bounds for a paired change that hold at every truth: Buehler's, with the score test's order.

A class of n images is seen by two models. An image is lost with chance q, won with chance p, and
Δ = p − q is the change of the class's accuracy. (lost, won) is trinomial, and p a nuisance: no
statistic of the two counts has a law that depends on Δ alone. Therefore the bound maximises.

1. Order. Let u(b, c) be the upper end of Tango's score interval at tail t. A result is as low as
   the one seen where its u is: R = {(b, c): u(b, c) ≤ u(lost, won)}. R is closed towards more lost
   and fewer won images (made so, should the score not be), and of two R one contains the other.
2. Coupling. Let every image draw U uniform in [0, 1]: lost if U < q, won if U > 1 − p. A larger q
   adds lost images, a smaller p takes won ones away, so P_{q,p}(R) rises with q and falls with p.
   Of all truths with Δ ≥ d and this p, the likeliest to give R is hence q(p) = min(p − d, 1 − p).
3. Nuisance (Berger and Boos). C is the exact interval of p at level 1 − β, β = t/10. The bound is
   high = least d such that max_{p ∈ C} P_{q(p),p}(R) ≤ t − β.
   Were it below the truth Δ, then p lies outside C (chance ≤ β), or P_{q,p}(R) ≤ t − β at the
   truth itself, which has chance ≤ t − β, since the R are nested: P(high < Δ) ≤ t at every truth.
4. The maximum is no search: for p in a cell [p₀, p₁], P_{q(p),p}(R) ≤ P_{q₁,p₀}(R) with
   q₁ = min(p₁ − d, 1 − p₀), by coupling. Cells are cut until all are below t − β, or some truth is
   above it, or they are very narrow. What stays open counts as above, and counts of won images
   too rare to sum count as if they were in R.

The lower bound is the upper one of the pair turned around. Nothing is approximate but arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from classwise.errors import ClasswiseError
from classwise.statistics.intervals import Rates, exact
from classwise.statistics.paired import paired_interval, score

Whole = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Many: TypeAlias = npt.ArrayLike

_NUISANCE = 0.1  # share of a tail that pays for the interval of P(won)
_PARTS = (8, 4, 4)  # that interval's cells, theirs, and theirs again
_STEPS = 10  # of halving in search of a bound, which is rounded outwards
_NEGLECTED = 1e-7  # share of a tail that counts too rare to sum may take; they count in full
_BLOCK = 2_000_000  # counts held at a time


def upper_bound(
    lost: npt.ArrayLike, won: npt.ArrayLike, sizes: npt.ArrayLike, tail: float
) -> Rates:
    """Upper bound of each change; too low with chance `tail` at most; nan where there is no image.

    P(high < Δ) ≤ tail for all n, P(lost) and P(won)

    >>> upper_bound([10, 0], [2, 0], [100, 0], 0.025).round(3).tolist()
    [-0.009, nan]
    """
    return _each(_upper_bounds, (lost, won, sizes, 0), tail)


def lower_bound(
    lost: npt.ArrayLike, won: npt.ArrayLike, sizes: npt.ArrayLike, tail: float
) -> Rates:
    """Lower bound of each change: `upper_bound`, turned around."""
    return -upper_bound(won, lost, sizes, tail)


def surely_below(lost: Many, won: Many, sizes: Many, change: Many, tail: float) -> Mask:
    """Whether each change is shown to be below a value: the test that the upper bound inverts.

    P(surely below d) ≤ tail for all truths with Δ ≥ d; never where there is no image

    >>> surely_below([10, 3], [0, 0], [100, 100], -0.03, 0.05).tolist()
    [True, False]
    """
    found: Mask = _each(_shown, (lost, won, sizes, change), tail) == 1
    return found


def surely_above(lost: Many, won: Many, sizes: Many, change: Many, tail: float) -> Mask:
    """Whether each change is shown to be above a value: `surely_below`, turned around."""
    return surely_below(won, lost, sizes, -np.asarray(change, np.float64), tail)


class _Results(NamedTuple):
    """Results (lost, won) of n images each, and for each all that are as low as it is.

    Counts of won images lie on the last axis, from `first` to the end of what is likely.
    """

    n: Rates
    tail: float
    p_low: Rates  # the exact interval of P(won)
    p_high: Rates
    middle: Rates  # the change that was seen
    upper: Rates  # the upper end of its score interval
    won: Rates  # counts
    least: Rates  # so many lost images make each count as low as the result
    ways: Rates  # log of the binomial coefficient; −∞ for no count at all
    rest: float  # chance of all other counts

    def below(self, change: Rates) -> Mask:
        """Whether no truth with a change of `change` or more makes results this low likely."""
        sought = (1 - _NUISANCE) * self.tail
        start = np.maximum(self.p_low, change)
        some = start <= self.p_high  # else so great a change is excluded together with p
        owner, above = np.flatnonzero(some), np.zeros(len(self.n), bool)
        start, width = start[some], (self.p_high - start)[some]
        for parts in _PARTS:
            owner, width = np.repeat(owner, parts), np.repeat(width / parts, parts)
            start = np.repeat(start, parts) + width * np.tile(np.arange(parts), len(start))
            lost = np.minimum(start + width - change[owner], 1 - start)
            most = self.chance(owner, lost, start)
            above[self._above(owner, start, most, change, sought)] = True
            cell = (most > sought) & ~above[owner]
            owner, start, width = owner[cell], start[cell], width[cell]
        above[owner] = True  # left open
        return ~above

    def _above(
        self, owner: Whole, start: Rates, most: Rates, change: Rates, sought: float
    ) -> Whole:
        """Whose truth at the beginning of its most suspicious cell is above what is sought."""
        order = np.lexsort((most, owner))
        last = order[np.flatnonzero(np.diff(owner[order], append=-1))]
        last = last[most[last] > sought]
        who, p = owner[last], start[last]
        return who[self.chance(who, np.minimum(p - change[who], 1 - p), p) > sought]

    def chance(self, owner: Whole, q: Rates, p: Rates) -> Rates:
        """P(as low as the result, or too rare to say) where images are lost and won with q, p."""
        won, least, n = self.won[owner], self.least[owner], self.n[owner, None]
        p = p[:, None]
        mass = np.exp(self.ways[owner] + special.xlogy(won, p) + special.xlog1py(n - won, -p))
        rare = mass * mass.shape[1] <= _NEGLECTED * self.tail
        tail = (least <= n - won).astype(np.float64)
        sum_up = ~rare & (least > 0) & (tail > 0)
        share = np.minimum(np.divide(q, 1 - p[:, 0], out=np.zeros(len(q)), where=p[:, 0] < 1), 1)
        where = np.nonzero(sum_up)
        enough = least[where]
        others = (n - won)[where]
        tail[where] = special.betainc(enough, others - enough + 1, share[where[0]])
        total: Rates = np.where(rare, mass, mass * tail).sum(1) + self.rest
        return total


def _results(b: Rates, c: Rates, n: Rates, tail: float) -> _Results:
    """Order all results of n images by the upper end of their score interval."""
    # One-sided, and a little wider, so that rounding leaves a result among those as low as it is.
    level = max(1 - 2 * tail, 1e-9)
    upper = paired_interval(b, c, n, level)[1] + 1e-9
    z = float(stats.norm.ppf((1 + level) / 2))
    least = _least_lost(n, upper, z)
    p_low, p_high = exact(c, n, 1 - _NUISANCE * tail)
    rest = _NEGLECTED * tail
    first = np.asarray(stats.binom.ppf(rest / 2, n, p_low))
    last = np.asarray(stats.binom.isf(rest / 2, n, p_high))
    size = n[:, None]
    counts = first[:, None] + np.arange(int((last - first).max()) + 1)
    inside = np.minimum(counts, size)
    ways = (
        special.gammaln(size + 1) - special.gammaln(inside + 1) - special.gammaln(size - inside + 1)
    )
    return _Results(
        n,
        tail,
        p_low,
        p_high,
        (c - b) / n,
        upper,
        inside,
        np.take_along_axis(least, inside.astype(np.int64), 1),
        np.where(counts <= size, ways, -np.inf),
        rest,
    )


def _least_lost(n: Rates, upper: Rates, z: float) -> Rates:
    """For each n and count of won images: so many lost ones bring the upper end down to `upper`."""
    size, end = n[:, None], upper[:, None]
    won = np.broadcast_to(np.arange(n.max() + 1), (len(n), int(n.max()) + 1))
    too_few, least = np.full(won.shape, -1.0), size - won + 1.0
    for _ in range(int(n.max() + 2).bit_length()):
        half = np.floor((too_few + least) / 2)
        beyond, variance = score(half, won, size + 0 * won, end)
        low = (half >= 0) & (-beyond >= z * np.sqrt(variance))
        too_few, least = np.where(low, too_few, half), np.where(low, half, least)
    least = np.where(least <= size - won, least, np.inf)
    # what is as low with more won images is as low with fewer
    return np.minimum.accumulate(least[:, ::-1], axis=1)[:, ::-1]


def _shown(results: _Results, change: Rates) -> Rates:
    return results.below(change).astype(np.float64)


def _upper_bounds(results: _Results, _: Rates) -> Rates:
    """Least change that a result shows its truth to be below, by halving, rounded upwards."""
    guess, width = results.upper, results.upper - results.middle
    inside, beyond = results.middle, np.ones(len(width))
    for half in (guess - width / 4, guess + width / 4, *[None] * _STEPS):
        at = (inside + beyond) / 2 if half is None else np.minimum(half, 1.0)
        below = results.below(at)
        inside, beyond = (
            np.where(below, inside, at),
            np.where(below, np.minimum(at, beyond), beyond),
        )
    return beyond


def _each(
    answer: Callable[[_Results, Rates], Rates],
    counts_and_change: tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike, npt.ArrayLike],
    tail: float,
) -> Rates:
    """Ask about every distinct result once, a block at a time; nan where there is no image."""
    if not 0 < tail <= 0.5:
        raise ClasswiseError(f"the tail is {tail}; give a chance of at most one half, such as 0.05")
    asked = (np.asarray(part, np.float64) for part in counts_and_change)
    b, c, n, change = np.broadcast_arrays(*asked)
    if not np.all((b >= 0) & (c >= 0) & (b + c <= n)):
        raise ClasswiseError("lost and won must be counts of different images of their class")
    rows, back = np.unique(
        np.stack([part.ravel() for part in (n, b, c, change)]), axis=1, return_inverse=True
    )
    found = np.full(rows.shape[1], np.nan)
    left = np.flatnonzero(rows[0] > 0)
    while len(left):
        at_once = 1 + int(_BLOCK / _PARTS[0] / (rows[0, left[0]] + 1))  # sizes ascend
        alike = int(np.searchsorted(rows[0, left], 2 * rows[0, left[0]], "right"))
        now, left = np.split(left, [min(at_once, alike)])
        size, lost, won, value = rows[:, now]
        found[now] = answer(_results(lost, won, size, tail), value)
    return found[back.ravel()].reshape(n.shape)
