"""The difference of logits ratio: a loss that scaling the logits cannot flatten."""

from __future__ import annotations

import torch
from torch import Tensor

from classwise.attacks.losses import LogitGap
from classwise.types import Labels, Logits, PerSample

_TINY = 1e-12  # keeps the ratio finite where the leading logits are equal


def dlr(logits: Logits, labels: Labels) -> PerSample:
    """Best other logit minus the true one, in units of the lead of the first over the third.

    DLR(z, y) = (max_{k≠y} z_k − z_y) / (z_(1) − z_(3)); with two classes there is no third logit
    and the numerator stands alone.

    >>> dlr(torch.tensor([[4.0, 3.0, 2.0, 0.0]]), torch.tensor([0])).item()
    -0.5
    """
    return LogitGap(labels)(logits) / _lead(logits, behind=1)


def targeted_dlr(logits: Logits, labels: Labels, targets: Labels) -> PerSample:
    """Target logit minus the true one, in units of the lead of the first over third and fourth.

    DLR_t(z, y) = (z_t − z_y) / (z_(1) − (z_(3) + z_(4)) / 2); with three classes z_(3) stands for
    the mean, with two the numerator stands alone.

    >>> z = torch.tensor([[4.0, 3.0, 1.0, 0.0]])
    >>> round(targeted_dlr(z, torch.tensor([0]), torch.tensor([1])).item(), 4)
    -0.2857
    """
    both = logits.gather(1, torch.stack((targets, labels), dim=1))
    return (both[:, 0] - both[:, 1]) / _lead(logits, behind=2)


def _lead(logits: Logits, behind: int) -> Tensor:
    """How far the first logit leads the mean of the third and its followers, as far as there."""
    top = logits.topk(min(2 + behind, logits.shape[1]), dim=1).values
    if top.shape[1] < 3:
        return torch.ones_like(top[:, 0])
    return top[:, 0] - top[:, 2:].mean(1) + _TINY
