"""Which samples train and which validate: pure functions of labels and seed."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import torch
from torch import Tensor

from classwise.data.dataset import Dataset, DataSource
from classwise.draws import Draws
from classwise.errors import ClasswiseError, cut

# Of a longer exponent Python would write out every zero.
_FRACTION = re.compile(r"\s*[0-9]{0,18}\.?[0-9]{0,18}(/[0-9]{1,18}|[eE]-?[0-9]{1,2})?\s*")
HELD_OUT = 1 / 3  # test share of each class where a source has no test part of its own


def held_out(name: str, whole: Dataset, *, known: bool = False) -> DataSource:
    """Set a third of each class aside for testing, always the same third.

    `known` says that the data are known by this division, as `digits` are. Groups that belong
    together stay together.
    """
    train, test = split_indices(whole.labels, HELD_OUT, seed=0, groups=whole.together)
    parts = whole.subset(train), whole.subset(test)
    return DataSource(name, *parts, places=(train, test), set_aside=not known)


def split_indices(
    labels: Tensor, rule: str | float, seed: int = 0, groups: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Split into (train, valid), both in data set order.

    A fraction takes that share of every class, at least one where the class has two or more,
    chosen by `seed`; `first:100` and `last:300` take so many of each class in data set order,
    `last:0.06` that share of it.
    A class of one sample keeps it for training. With `groups`, a number for each sample, all of a
    group go the same way: whole groups are taken until there are enough, and one is left.

    >>> train, valid = split_indices(torch.tensor([0, 1, 0, 1, 0, 1]), "last:1")
    >>> train.tolist(), valid.tolist()
    ([0, 1, 2, 3], [4, 5])
    """
    position, sizes = torch.arange(len(labels)), torch.bincount(labels)
    kind, _, number = str(rule).partition(":")
    if kind in ("first", "last"):
        if "." in number:
            wanted = _portions(_share(number, rule), sizes)
        else:
            wanted = torch.full_like(sizes, _whole(number, rule))
            if groups is None:
                _check_left(sizes, wanted, rule)
        key = position if kind == "first" else position.flip(0)
    else:
        wanted = _portions(_share(kind, rule), sizes)
        key = Draws(seed, "split").order(len(labels)).argsort()
    if groups is None:
        chosen = (rank_within_class(labels, key) < wanted[labels]) & (sizes[labels] > 1)
    else:
        chosen = _whole_groups(labels, groups, wanted, key)
    if bool(chosen.all()) and len(labels):
        raise ClasswiseError(f"split {rule!r} leaves no training sample; ask for fewer per class")
    return position[~chosen], position[chosen]


def balanced_subset(labels: Tensor, count: int, seed: int = 0) -> Tensor:
    """Choose `count` samples, as evenly over the classes as their sizes allow, in data set order.

    >>> labels = torch.tensor([0, 0, 0, 0, 0, 1])
    >>> torch.bincount(labels[balanced_subset(labels, 3)]).tolist()
    [2, 1]
    """
    if count >= len(labels):
        return torch.arange(len(labels))
    if count < 1:
        raise ClasswiseError(f"cannot take {count} samples; give a number from 1 up")
    return balanced_order(labels, seed)[:count].sort().values


def balanced_order(labels: Tensor, seed: int = 0) -> Tensor:
    """All samples, one of every class first, then a second of every class, and so on.

    >>> labels = torch.tensor([0, 0, 0, 0, 0, 1])
    >>> labels[balanced_order(labels)[:2]].sort().values.tolist()
    [0, 1]
    """
    shuffled = Draws(seed, "subset").order(len(labels)).argsort()
    rounds = rank_within_class(labels, shuffled) * len(labels) + shuffled
    return rounds.argsort()


def rank_within_class(labels: Tensor, key: Tensor) -> Tensor:
    """Place of each sample among its own class when sorted by `key` (0 is first).

    >>> rank_within_class(torch.tensor([7, 7, 3, 7]), torch.tensor([2, 0, 1, 3])).tolist()
    [1, 0, 0, 2]
    """
    order = key.argsort(stable=True)
    order = order[labels[order].argsort(stable=True)]  # by class, then by key
    sizes = torch.bincount(labels)
    begin = sizes.cumsum(0) - sizes
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(labels)) - begin[labels[order]]
    return rank


def _check_left(sizes: Tensor, wanted: Tensor, rule: str | float) -> None:
    short = ((sizes > 1) & (sizes <= wanted)).nonzero().flatten().tolist()
    if short:
        raise ClasswiseError(
            f"split {rule!r} leaves no training sample of class number {short[0]}, which has "
            f"{int(sizes[short[0]])}; ask for fewer per class, or for a fraction such as 0.02"
        )


def _whole_groups(labels: Tensor, groups: Tensor, wanted: Tensor, key: Tensor) -> Tensor:
    """Which samples are chosen where groups go as a whole, in the order of their first keys.

    A group counts for the class that most of it is of. Of every class one group stays.
    """
    numbers = torch.unique(groups, return_inverse=True)[1]
    sizes, classes = torch.bincount(numbers), len(wanted)
    pairs, times = torch.unique(numbers * classes + labels, return_counts=True)
    order = times.argsort(descending=True, stable=True)
    order = order[(pairs[order] // classes).argsort(stable=True)]  # by group, most frequent first
    every = torch.arange(len(sizes))
    home = (pairs[order] % classes)[torch.searchsorted(pairs[order] // classes, every)]
    first = torch.full_like(sizes, len(labels))
    first = first.scatter_reduce(0, numbers, torch.arange(len(labels)), "amin")
    order = key[first].argsort(stable=True)
    order = order[home[order].argsort(stable=True)]  # by class, then by key
    at, before = home[order], sizes[order].cumsum(0) - sizes[order]
    before = before - before[torch.searchsorted(at, at)]  # within the class
    last = torch.searchsorted(at, at, right=True) - 1 == torch.arange(len(at))
    taken = torch.zeros(len(sizes), dtype=torch.bool)
    taken[order] = (before < wanted[at]) & ~last
    chosen: Tensor = taken[numbers]
    lost = torch.bincount(labels[chosen], minlength=classes) == torch.bincount(labels)
    lost &= torch.bincount(labels) > 0
    if bool(lost.any()):
        raise ClasswiseError(
            f"no sample of class number {int(lost.nonzero()[0])} is left to train on where groups "
            "stay together; its samples stand in groups of other classes: group by something else"
        )
    return chosen


def _portions(share: Fraction, sizes: Tensor) -> Tensor:
    # Exact numbers: 0.15 of 100 is 15, not a hair more and so 16.
    wanted = torch.tensor([math.ceil(share * size) for size in sizes.tolist()]).long()
    return torch.minimum(wanted, (sizes - 1).clamp(min=0))  # never empty a class of training


def _share(text: str, rule: str | float) -> Fraction:
    try:
        share = Fraction(text) if _FRACTION.fullmatch(text) else Fraction(-1)
    except (ValueError, ZeroDivisionError):
        share = Fraction(-1)
    if not 0 <= share < 1:
        raise ClasswiseError(
            f"split {cut(rule)!r} is not known; give a fraction of each class such as 0.02, "
            "or first:N, or last:N with a number or a fraction of each class"
        )
    return share


def _whole(text: str, rule: str | float) -> int:
    if not re.fullmatch("[0-9]{1,18}", text) or not int(text):
        raise ClasswiseError(
            f"split {cut(rule)!r} needs a whole number of samples per class, as in first:100"
        )
    return int(text)
