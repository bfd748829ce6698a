"""When a sample's attack ends before the last step."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from classwise.types import Labels, Logits


class Verdict(NamedTuple):
    """What a stop rule says before an update, one flag per sample."""

    moving: Tensor  # take this update
    rewound: Tensor | None = None  # go back to the iterate before this one


class StopWatch(Protocol):
    """A stop rule at work on one batch; it is told the logits before each update."""

    def __call__(self, logits: Logits) -> Verdict:
        """Inspect the current iterates."""


class StopRule(Protocol):
    """A rule that may end a sample's attack early. It masks updates and never drops samples."""

    def watch(self, labels: Labels, epoch: int, epochs: int) -> StopWatch:
        """Begin to watch one batch."""
