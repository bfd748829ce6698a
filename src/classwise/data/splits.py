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

    `known` says that the data are known by this division, as `digits` are.
    """
    train, test = split_indices(whole.labels, HELD_OUT, seed=0)
    parts = whole.subset(train), whole.subset(test)
    return DataSource(name, *parts, places=(train, test), set_aside=not known)


def split_indices(labels: Tensor, rule: str | float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Split into (train, valid), both in data set order.

    A fraction takes that share of every class, at least one where the class has two or more,
    chosen by `seed`; `first:100` and `last:300` take so many of each class in data set order,
    `last:0.06` that share of it.
    A class of one sample keeps it for training.

    >>> train, valid = split_indices(torch.tensor([0, 1, 0, 1, 0, 1]), "last:1")
    >>> train.tolist(), valid.tolist()
    ([0, 1, 2, 3], [4, 5])
    """
    position = torch.arange(len(labels))
    kind, _, number = str(rule).partition(":")
    if kind in ("first", "last"):
        sizes = torch.bincount(labels)
        if "." in number:
            wanted = _portions(_share(number, rule), sizes)
        else:
            wanted = torch.full_like(sizes, _whole(number, rule))
        short = ((sizes > 1) & (sizes <= wanted)).nonzero().flatten().tolist()
        if short:
            raise ClasswiseError(
                f"split {rule!r} leaves no training sample of class number {short[0]}, which has "
                f"{int(sizes[short[0]])}; ask for fewer per class, or for a fraction such as 0.02"
            )
        rank = rank_within_class(labels, position if kind == "first" else position.flip(0))
        chosen = (rank < wanted[labels]) & (sizes[labels] > 1)
    else:
        sizes = torch.bincount(labels)
        wanted = _portions(_share(kind, rule), sizes)
        shuffled = Draws(seed, "split").order(len(labels)).argsort()
        chosen = rank_within_class(labels, shuffled) < wanted[labels]
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
    shuffled = Draws(seed, "subset").order(len(labels)).argsort()
    # One sample of every class first, then a second of every class, and so on.
    rounds = rank_within_class(labels, shuffled) * len(labels) + shuffled
    return rounds.argsort()[:count].sort().values


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
