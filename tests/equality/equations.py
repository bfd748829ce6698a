"""Losses and attacks as plain equations, for the transcriptions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from equality.laboratory import World

# The mathematics of the transcriptions: one sample at a time.


def chances(logits: Tensor) -> Tensor:
    """Softmax of one row."""
    powers = logits.exp()
    return powers / powers.sum()


def surprise(logits: Tensor, label: int) -> Tensor:
    """Cross-entropy of one row."""
    return logits.exp().sum().log() - logits[label]


def kl(first: Tensor, second: Tensor) -> Tensor:
    """KL divergence between the predictions of two rows of logits."""
    p, q = chances(first), chances(second)
    return (p * (p.log() - q.log())).sum()


def total_surprise(logits: Tensor, labels: Tensor) -> Tensor:
    return torch.stack([surprise(z, y) for z, y in zip(logits, labels.tolist(), strict=True)]).sum()


def total_kl(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack([kl(a, b) for a, b in zip(first, second, strict=True)]).sum()


def climb(
    model: nn.Module,
    images: Tensor,
    begin: Tensor,
    height: Callable[[Tensor], Tensor],
    eps: Tensor | float,
    step: Tensor | float,
    steps: int = 10,
) -> Tensor:
    """The attack of TRADES' family: sign steps, then the cube around the image, then [0, 1]."""
    now = begin.detach().clone()
    for _ in range(steps):
        now.requires_grad_(True)
        (slope,) = torch.autograd.grad(height(model(now)), now)
        now = now.detach() + step * slope.sign()
        now = torch.min(torch.max(now, images - eps), images + eps)
        now = now.clamp(0.0, 1.0)
    return now


def climb_from_clean(
    model: nn.Module, here: World, eps: Tensor | float, step: Tensor | float
) -> Tensor:
    """TRADES' attack: away from the clean prediction, from 0.001·N, with running statistics."""
    model.eval()
    with torch.no_grad():
        clean = model(here.images)
    begin = here.images + 0.001 * here.normal()
    found = climb(model, here.images, begin, lambda z: total_kl(clean, z), eps, step)
    model.train()
    return found.clamp(0.0, 1.0)
