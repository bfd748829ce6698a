"""Two figures of the same classes, or of the same pairs of classes: do they go together?

Pairs that share a class are not independent, so nothing but a change of names is fair: the classes
of one of the two are permuted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats

from classwise.statistics.intervals import Rates

_WORK = 200_000_000  # numbers that all permutations together look at
_BLOCK = 4_000_000


class Together(NamedTuple):
    """Spearman's ρ, and the chance that permuted classes give as large a one of either sign."""

    rho: float
    p_value: float


def classes_together(one: Rates, other: Rates, draws: int = 5000, seed: int = 0) -> Together:
    """Spearman's ρ over classes.

    p = (1 + #{|ρ*| ≥ |ρ|})/(1 + draws), ρ* after a permutation of the classes

    >>> classes_together(np.arange(6.0), np.arange(6.0) ** 2).rho
    1.0
    """
    return _together(np.diag(one), np.diag(other), np.eye(len(one), dtype=bool), draws, seed)


def pairs_together(one: Rates, other: Rates, draws: int = 5000, seed: int = 0) -> Together:
    """Spearman's ρ over pairs of classes, of two symmetric tables (Mantel's test).

    Rows and columns of one table are permuted together. With very many classes there are fewer
    permutations than asked for, 200 at the least.
    """
    return _together(one, other, np.triu(np.ones(one.shape, bool), 1), draws, seed)


def _together(one: Rates, other: Rates, used: Rates, draws: int, seed: int) -> Together:
    first, second = _ranked(one, used), _ranked(other, used)
    length = np.sqrt((first**2).sum() * (second**2).sum())
    if not length:
        return Together(float("nan"), float("nan"))
    second = second + second.T if not used.diagonal().any() else second
    count, size = max(200, min(draws, _WORK // one.size)), len(one)
    random = np.random.default_rng([seed, 0x2E6])
    rho, least = float((first * second).sum() / length), 0
    for begin in range(0, count, max(1, _BLOCK // one.size)):
        many = min(count - begin, max(1, _BLOCK // one.size))
        order = random.permuted(np.tile(np.arange(size), (many, 1)), axis=1)
        moved = second[order[:, :, None], order[:, None, :]]
        found = np.einsum("ij,bij->b", first, moved) / length
        least += int((np.abs(found) >= abs(rho) - 1e-12).sum())
    return Together(rho, (1 + least) / (1 + count))


def _ranked(table: Rates, used: Rates) -> Rates:
    """Centred ranks of the used cells, 0 elsewhere."""
    ranks = np.zeros(table.shape)
    found = stats.rankdata(table[used])
    ranks[used] = found - found.mean() if len(found) else found
    return ranks
