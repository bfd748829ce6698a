"""When a sample's attack ends before the last step."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from classwise.types import Labels, Logits


class Verdict(NamedTuple):
    """What a stop rule says before an update, one flag per sample."""

    moving: Tensor  # take this update
    rewound: Tensor | None = None  # go back to the iterate before this one
    ended: Tensor | None = None  # after this update nothing will happen any more; None: who knows


class StopWatch(Protocol):
    """A stop rule at work on one batch; it is told the logits before each update."""

    def __call__(self, logits: Logits) -> Verdict:
        """Inspect the current iterates."""

    def rows(self, keep: Tensor) -> StopWatch:
        """Go on with the samples in `keep`; asked only of a rule that says who has ended."""


class StopRule(Protocol):
    """A rule that may end a sample's attack early. It masks updates; the attack drops samples."""

    def watch(self, labels: Labels, epoch: int, epochs: int) -> StopWatch:
        """Begin to watch one batch."""


class PatientWatch:
    """FAT's own rule: each error spends one life, and the first error without lives is the end.

    A sample that is right again goes on, however few lives it has left.

    >>> watch = PatientWatch(torch.tensor([0]), patience=0)
    >>> [watch(torch.tensor([logits])).moving.item() for logits in ([1.0, 0.0], [0.0, 1.0])]
    [True, False]
    """

    def __init__(self, labels: Labels, patience: int) -> None:
        self.labels = labels
        self.lives = torch.full_like(labels, patience)  # τ
        self.moving = torch.ones_like(labels, dtype=torch.bool)

    def __call__(self, logits: Logits) -> Verdict:
        """Stop what is wrong and has no life left."""
        wrong = _wrong(logits, self.labels)
        self.moving = self.moving & ~(wrong & (self.lives == 0))
        self.lives = self.lives - (wrong & self.moving).long()
        return Verdict(self.moving, ended=~self.moving)

    def rows(self, keep: Tensor) -> PatientWatch:
        """Go on with some samples."""
        found = PatientWatch(self.labels[keep], 0)
        found.lives, found.moving = self.lives[keep], self.moving[keep]
        return found


class CountingWatch:
    """CFA's rule: a sample moves while it has lives, and each error spends one.

    Unlike FAT's, it freezes with the last life even if the sample is right again later, and
    without patience nothing ever moves.

    >>> watch = CountingWatch(torch.tensor([0]), patience=1)
    >>> wrong, right = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    >>> [watch(logits).moving.item() for logits in (right, wrong, right)]
    [True, True, False]
    """

    def __init__(self, labels: Labels, patience: int) -> None:
        self.labels = labels
        self.lives = torch.full_like(labels, patience)  # τ

    def __call__(self, logits: Logits) -> Verdict:
        """Look at the lives before this error is counted."""
        moving = self.lives > 0
        self.lives = self.lives - (_wrong(logits, self.labels) & moving).long()
        return Verdict(moving, ended=self.lives <= 0)

    def rows(self, keep: Tensor) -> CountingWatch:
        """Go on with some samples."""
        found = CountingWatch(self.labels[keep], 0)
        found.lives = self.lives[keep]
        return found


class LastCorrectWatch:
    """BAT's rule: at the first error go back to the iterate before it, and stay there.

    A sample that starts wrong stays at its start; one never found wrong keeps its last iterate,
    which nobody inspects.
    """

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.moving = torch.ones_like(labels, dtype=torch.bool)

    def __call__(self, logits: Logits) -> Verdict:
        """Rewind what has just become wrong."""
        caught = _wrong(logits, self.labels) & self.moving
        self.moving = self.moving & ~caught
        return Verdict(self.moving, rewound=caught, ended=~self.moving)

    def rows(self, keep: Tensor) -> LastCorrectWatch:
        """Go on with some samples."""
        found = LastCorrectWatch(self.labels[keep])
        found.moving = self.moving[keep]
        return found


class LimitedWatch:
    """Some samples have fewer steps than others; within its own, another rule may stop one, too.

    >>> watch = LimitedWatch(torch.tensor([1, 2]), None)
    >>> [watch(torch.zeros(2, 3)).moving.tolist() for _ in range(2)]
    [[True, True], [False, True]]
    """

    def __init__(self, steps: Tensor, inside: StopWatch | None) -> None:
        self.steps, self.inside = steps, inside
        self.taken = 0

    def __call__(self, logits: Logits) -> Verdict:
        """Freeze what has had its steps."""
        left = self.taken < self.steps
        self.taken += 1
        over = self.taken >= self.steps
        if self.inside is None:
            return Verdict(left, ended=over)
        verdict = self.inside(logits)
        rewound = None if verdict.rewound is None else verdict.rewound & left
        ended = None if verdict.ended is None else verdict.ended | over
        return Verdict(verdict.moving & left, rewound, ended)

    def rows(self, keep: Tensor) -> LimitedWatch:
        """Go on with some samples."""
        found = LimitedWatch(
            self.steps[keep], None if self.inside is None else self.inside.rows(keep)
        )
        found.taken = self.taken
        return found


def _wrong(logits: Logits, labels: Labels) -> Tensor:
    return logits.argmax(1) != labels
