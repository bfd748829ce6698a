"""Projected gradient ascent with a radius and a step per sample: the only one in the package.

FGSM is one step of it, a targeted attack is another loss, early stopping is a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from classwise.attacks.ball import LINF, Ball, per_image
from classwise.attacks.losses import AttackLoss
from classwise.attacks.stops import StopWatch
from classwise.spelling import Share
from classwise.types import Images, LogitModel, PerSample

BatchNormMode: TypeAlias = Literal["train", "eval", "batch"]


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


_STILL = "_statistics_stay"  # on BatchNorm layers of a part that does not train


def hold_statistics(norm: nn.Module) -> None:
    """Keep a BatchNorm layer in eval mode for good: frozen parts stay the same function."""
    setattr(norm, _STILL, True)


def set_training(model: nn.Module, training: bool) -> None:
    """Put a model in train or eval mode, except for layers whose statistics are held."""
    model.train(training)
    for part in model.modules():
        if getattr(part, _STILL, False):
            part.eval()


@contextmanager
def batchnorm_mode(model: nn.Module, mode: BatchNormMode) -> Iterator[None]:
    """Put a model in the mode an attack or audit wants, and back again whatever happens.

    `train`: batch statistics, running ones move (the released AT code). `eval`: running
    statistics. `batch`: batch statistics, running ones stay as they are. Layers whose statistics
    are held use their running ones in every mode.
    """
    before = [(part, part.training) for part in model.modules()]
    tracking = [
        (part, part.track_running_stats)
        for part in model.modules()
        if isinstance(part, nn.modules.batchnorm._BatchNorm)
    ]
    try:
        set_training(model, mode != "eval")
        if mode == "batch":
            for part, _ in tracking:
                part.track_running_stats = False
        yield
    finally:
        for part, was_tracking in tracking:
            part.track_running_stats = was_tracking
        for module, was_training in before:
            module.training = was_training
