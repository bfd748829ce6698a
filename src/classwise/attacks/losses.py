"""What an attack climbs: one number per sample from its logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch.nn.functional as F
from torch import Tensor

from classwise.types import Labels, Logits, PerSample


class AttackLoss(Protocol):
    """A loss to climb, which can be cut down to some of its samples."""

    def __call__(self, logits: Logits) -> PerSample:
        """Return the height of each sample."""

    def rows(self, keep: Tensor) -> AttackLoss:
        """Return the same loss for the samples in `keep`."""


@dataclass(frozen=True, slots=True)
class CrossEntropy:
    """Away from the labels, or, targeted, towards them: ± CE(f(x'), y)."""

    labels: Labels
    targeted: bool = False

    def __call__(self, logits: Logits) -> PerSample:
        """Cross-entropy per sample, negated when targeted."""
        height = F.cross_entropy(logits, self.labels, reduction="none")
        return -height if self.targeted else height

    def rows(self, keep: Tensor) -> CrossEntropy:
        """Cut down to some samples."""
        return CrossEntropy(self.labels[keep], self.targeted)


@dataclass(frozen=True, slots=True)
class LogitGap:
    """The CW loss: best other logit minus the true one, positive once the sample is fooled."""

    labels: Labels

    def __call__(self, logits: Logits) -> PerSample:
        """Return the gap per sample."""
        own = logits.gather(1, self.labels[:, None]).squeeze(1)
        others = logits.scatter(1, self.labels[:, None], float("-inf"))
        return others.amax(1) - own

    def rows(self, keep: Tensor) -> LogitGap:
        """Cut down to some samples."""
        return LogitGap(self.labels[keep])


@dataclass(frozen=True, slots=True)
class Divergence:
    """Away from a given prediction: KL(q ‖ p(x')) with q = softmax(`reference`)."""

    reference: Logits

    def __call__(self, logits: Logits) -> PerSample:
        """KL divergence per sample."""
        return divergence(self.reference, logits)

    def rows(self, keep: Tensor) -> Divergence:
        """Cut down to some samples."""
        return Divergence(self.reference[keep])


@dataclass(frozen=True, slots=True)
class Amplified:
    """A loss times a factor, so that its slopes do not vanish in half precision."""

    inside: AttackLoss
    factor: float

    def __call__(self, logits: Logits) -> PerSample:
        """Multiply."""
        return self.factor * self.inside(logits)

    def rows(self, keep: Tensor) -> Amplified:
        """Cut down to some samples."""
        return Amplified(self.inside.rows(keep), self.factor)


def divergence(first: Logits, second: Logits) -> PerSample:
    """KL(p ‖ q) per sample between two predictions; gradients flow through both.

    >>> import torch
    >>> z = torch.tensor([[1.0, 2.0]])
    >>> divergence(z, z).item()
    0.0
    """
    given = first.log_softmax(1)
    return (given.exp() * (given - second.log_softmax(1))).sum(1)
