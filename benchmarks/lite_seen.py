"""Verdicts of a network on photographs, pooled over conditions, in groups.

A photograph's value under a set of conditions is the share of them under which the answer is right,
and a group's rate the mean over its photographs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from classwise.judging.samples import AuditedSamples
from classwise.statistics.paired import holm
from classwise.statistics.ranks import spearman

Numbers = NDArray[np.float64]
Whole = NDArray[np.int64]
Random = np.random.Generator
SEED, DEALS = 0, 10_000


@dataclass(frozen=True)
class Seen:
    """What one network said of some photographs: right or not, under several conditions."""

    name: str
    clean: Numbers  # of each photograph, 0 or 1
    values: Numbers  # of each photograph, the share of conditions under which it is right
    of: Whole  # number of its group
    groups: tuple[str, ...]

    @cached_property
    def sizes(self) -> Whole:
        """Photographs of each group."""
        return np.bincount(self.of, minlength=len(self.groups))

    def rates(self, values: Numbers) -> Numbers:
        """Mean of each group."""
        return np.bincount(self.of, values, minlength=len(self.groups)) / self.sizes


def under(audit: AuditedSamples, names: Sequence[str], shared: Whole) -> Numbers:
    """Right or not: a row for each condition, a column for each of these photographs."""
    found = []
    for name in names:
        rows = audit.conditions[name]
        at = np.searchsorted(rows.sample, shared)  # verdicts stand in the order of their samples
        assert np.array_equal(rows.sample[at], shared)
        found.append(rows.correct[at])
    return np.array(found, np.float64)


def asked(audit: AuditedSamples, names: Sequence[str]) -> Whole:
    """Photographs that were asked about under all of these conditions."""
    common = set.intersection(*({*audit.conditions[name].sample.tolist()} for name in names))
    return np.array(sorted(common), np.int64)


def seen(name: str, audit: AuditedSamples, names: Sequence[str], shared: Whole) -> Seen:
    """Pool some conditions of a network."""
    grouping = audit.grouping("metaclass")
    rows = audit.conditions["clean"]
    labels = rows.label[np.searchsorted(rows.sample, shared)]
    members = shared if grouping.of == "sample" else labels
    place = dict(zip(grouping.member.tolist(), grouping.group.tolist(), strict=True))
    mine = np.array([place[member] for member in members.tolist()])
    present, of = np.unique(mine, return_inverse=True)  # groups without any are left out
    groups = tuple(grouping.names[k] for k in present)
    clean = under(audit, ["clean"], shared)[0]
    return Seen(name, clean, under(audit, names, shared).mean(0), of, groups)


def differ(found: Seen, values: Numbers) -> tuple[float, Numbers]:
    """Chance of such groups if all are alike, and of each if it is like the rest (Holm)."""
    random, sizes = np.random.default_rng(SEED), found.sizes
    rest = len(values) - sizes

    def apart(one: Numbers) -> Numbers:
        sums = np.bincount(found.of, one, minlength=len(sizes))
        distances: Numbers = np.abs(sums / sizes - (one.sum() - sums) / rest)
        return distances

    def between(one: Numbers) -> float:
        return float((sizes * (found.rates(one) - one.mean()) ** 2).sum())

    seen_apart, seen_between = apart(values), between(values)
    more, most = np.ones(len(sizes)), 1
    for _ in range(DEALS):
        dealt = random.permutation(values)
        more += apart(dealt) >= seen_apart - 1e-12
        most += between(dealt) >= seen_between - 1e-12
    return most / (DEALS + 1), holm(more / (DEALS + 1))


def redrawn(found: Sequence[Seen], values: Sequence[Numbers], random: Random) -> Numbers:
    """Group rates on photographs drawn anew within groups, and one more whose verdict is a coin."""
    first = found[0]
    rates = np.empty((len(found), len(first.groups)))
    for k, size in enumerate(first.sizes):
        mine = np.flatnonzero(first.of == k)
        drawn_ones = random.choice(mine, size)
        for number, one in enumerate(values):
            rates[number, k] = (one[drawn_ones].sum() + random.integers(2)) / (size + 1)
    return rates


def halves(found: Sequence[Seen], values: Sequence[Numbers], random: Random) -> Numbers:
    """ρ between the rates of one network on half of each group and another's on the other half.

    A group of one photograph has no halves and is left out.
    """
    first, parts = found[0], np.empty((2, len(found), len(found[0].groups)))
    for k in range(len(first.groups)):
        mine = random.permutation(np.flatnonzero(first.of == k))
        for side, half in enumerate((mine[: len(mine) // 2], mine[len(mine) // 2 :])):
            parts[side, :, k] = [one[half].mean() if len(half) else np.nan for one in values]
    kept = parts[:, :, first.sizes > 1]
    both: Numbers = spearman(np.concatenate([kept[0], kept[1]]))[: len(found), len(found) :]
    return both
