"""Projected gradient ascent with a radius and a step per sample: the only one in the package.

FGSM is one step of it, a targeted attack is another loss, early stopping is a mask.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from classwise.attacks.ball import LINF, Ball, per_image
from classwise.attacks.losses import AttackLoss
from classwise.attacks.stops import StopWatch
from classwise.spelling import Share
from classwise.types import Images, LogitModel, PerSample


def pgd(
    model: LogitModel,
    images: Images,
    loss: AttackLoss,
    *,
    radius: PerSample,
    step: PerSample,
    steps: int,
    start: Images | None = None,
    ball: Ball = LINF,
    stop: StopWatch | None = None,
    jitter: Callable[[int], Tensor] | None = None,
) -> Images:
    """Images within `radius` of `images` that raise `loss`, detached and in batch order.

    Only the gradient of the input is computed; parameters, their gradients and the model's mode
    are left alone. The first forward sees `start` as it is. `stop` may freeze samples, never
    drop them, since a smaller batch would change train-mode BatchNorm; `jitter` is noise added
    to every update.

    >>> flat = lambda x: x.flatten(1)
    >>> from classwise.attacks.losses import CrossEntropy
    >>> x = torch.tensor([0.5, 0.5]).view(1, 1, 1, 2)
    >>> one = torch.tensor([0.1])
    >>> away = CrossEntropy(torch.tensor([0]))
    >>> moved = pgd(flat, x, away, radius=one, step=one, steps=1)
    >>> [round(pixel, 2) for pixel in moved.flatten().tolist()]
    [0.4, 0.6]
    """
    images = images.detach()
    current = (images if start is None else start).detach()  # a new tensor: it asks for gradients
    before = current
    for number in range(steps):
        current.requires_grad_()
        with torch.enable_grad():
            logits = model(current)
            (slope,) = torch.autograd.grad(loss(logits).sum(), current)
        current = current.detach()
        moved = current + ball.uphill(slope, step)
        if jitter is not None:
            moved += jitter(number)
        moved = ball.project(moved, images, radius)
        if stop is not None:
            verdict = stop(logits.detach())
            moved = torch.where(per_image(verdict.moving), moved, current)
            if verdict.rewound is not None:
                moved = torch.where(per_image(verdict.rewound), before, moved)
        before, current = current, moved
    # A start outside the ball that no step moved must not leave like that.
    return ball.project(current.detach(), images, radius)


def step_sizes(step: float | Share, radius: PerSample) -> PerSample:
    """The step of each sample: the same number for all, or a share of each one's radius.

    >>> radius = torch.tensor([0.25, 0.5])
    >>> step_sizes(0.125, radius).tolist(), step_sizes(Share(4), radius).tolist()
    ([0.125, 0.125], [0.0625, 0.125])
    """
    if isinstance(step, Share):
        part: PerSample = step.of(radius)
        return part
    return torch.full_like(radius, step)
