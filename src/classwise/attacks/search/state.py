"""One row of state per sample under attack: cut down as samples fall, filled up as others come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeVar

import torch
from torch import Tensor

from classwise.types import Images, Labels, PerSample

_ROUND, _CLOCK = 32, 44  # bits below the round and the clock in the key of a draw
B = TypeVar("B")


def draw_keys(index: Labels, round: Labels | int, clock: Labels | int = 0) -> Labels:
    """Sample index, restart or target, and query, in one number each."""
    return index + (round << _ROUND) + (clock << _CLOCK)


@dataclass(slots=True)
class Rows:
    """What stays fixed for each sample under attack."""

    images: Images
    labels: Labels
    index: Labels
    radius: PerSample
    rivals: Labels  # n×(K-1 or fewer) other classes, the likeliest on the clean image first
    place: Labels  # where the sample stands in the results
    round: Labels  # which restart or target it is at

    def keys(self, clock: Tensor | int = 0) -> Labels:
        """Keys of a sample's draws, different in every round and at every tick of its clock."""
        return draw_keys(self.index, self.round, clock)

    def target(self) -> Labels:
        """Return the class of this round."""
        return self.rivals.gather(1, self.round[:, None]).squeeze(1)


@dataclass(slots=True)
class State:
    """A sample's attack in progress; attacks add their own fields."""

    rows: Rows
    point: Images  # to be evaluated next
    clock: Tensor  # evaluations so far in this round


@dataclass(slots=True)
class Bounded(State):
    """With the cube a sample may not leave: ball and [0, 1] in one, or, for L2, [0, 1] alone."""

    low: Images
    high: Images


def take(block: B, keep: Tensor) -> B:
    """Cut every tensor of a dataclass down to the rows that are true in `keep`.

    >>> state = State(None, torch.zeros(2, 1, 1, 1), torch.tensor([4, 5]))
    >>> take(state, torch.tensor([False, True])).clock
    tensor([5])
    """
    return each(block, lambda tensor: pick(tensor, keep.nonzero().squeeze(1)))


def join(first: B, second: B) -> B:
    """Put the rows of two dataclasses of one kind under each other."""
    pairs = {
        f.name: (getattr(first, f.name), getattr(second, f.name))
        for f in fields(first)  # type: ignore[arg-type]
    }
    joined = {
        name: torch.cat((one, two)) if isinstance(one, Tensor) else join(one, two)
        for name, (one, two) in pairs.items()
    }
    return type(first)(**joined)


def each(block: B, change: Callable[[Tensor], Tensor]) -> B:
    """Change every tensor of a dataclass, also of those inside it."""
    values = {f.name: getattr(block, f.name) for f in fields(block)}  # type: ignore[arg-type]
    return type(block)(
        **{
            k: change(v) if isinstance(v, Tensor) else v and each(v, change)
            for k, v in values.items()
        }
    )


def pick(tensor: Tensor, rows: Tensor) -> Tensor:
    """Some rows of a tensor, in the layout it has."""
    if tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        # index_select knows only one layout; as n×h×w×c the pixels stay as they lie
        return tensor.permute(0, 2, 3, 1).index_select(0, rows).permute(0, 3, 1, 2)
    return tensor.index_select(0, rows)
