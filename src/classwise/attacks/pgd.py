"""Projected gradient ascent with a radius and a step per sample: the only one in the package.

FGSM is one step of it, a targeted attack is another loss, early stopping is a mask or a way out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from classwise.attacks.ball import LINF, Ball, Room, per_image
from classwise.attacks.losses import AttackLoss
from classwise.attacks.stops import StopWatch, Verdict
from classwise.spelling import Share
from classwise.types import Images, LogitModel, Logits, PerSample

Jitter: TypeAlias = Callable[[int, Tensor | None], Tensor]


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
    jitter: Jitter | None = None,
    alone: bool = False,
    last_look: bool = False,
) -> Images:
    """Images within `radius` of `images` that raise `loss`, detached and in batch order.

    Only the gradient of the input is computed; parameters, their gradients and the model's mode
    are left alone. The first forward sees `start` as it is. Samples that `stop` has ended leave
    where the model answers for each `alone`; elsewhere they are frozen, since a smaller batch would
    change train-mode BatchNorm, until nobody moves. `jitter` is noise added to every update, by its
    number and the rows it is for. With `last_look` the model sees the last iterates, too, for its
    statistics.

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
    room = Room(*ball.bounds(images, radius), images, radius)
    going = _Going(loss, step, room, stop, current, current)
    gone = _Gone()
    for number in range(steps):
        current, logits, slope = _asked(model, going.current, going.loss)
        moved = ball.uphill(slope, going.step).add_(current)
        if jitter is not None:
            moved += jitter(number, going.rows)
        moved = ball.into(moved, going.room)
        if going.stop is None:
            going = replace(going, current=moved)
            continue
        verdict = going.stop(logits)
        going = going.moved(verdict, current, moved)
        if verdict.ended is not None:
            if alone:
                going = gone.see_off(going, verdict.ended)
            if not bool((~verdict.ended if alone else verdict.moving).any()):
                break
    else:
        if last_look:
            with torch.no_grad():
                model(going.current)
    # A start outside the ball that no step moved must not leave like that.
    return ball.project(gone.among(going), images, radius)


@dataclass(frozen=True, slots=True)
class _Going:
    """The samples that are still under attack, and all that is theirs."""

    loss: AttackLoss
    step: PerSample
    room: Room
    stop: StopWatch | None
    before: Images  # the iterate before the current one
    current: Images
    rows: Tensor | None = None  # where they stand in the batch; None for all of it

    def moved(self, verdict: Verdict, here: Images, there: Images) -> _Going:
        """Go there, stay here or go back, as each is told."""
        there = torch.where(per_image(verdict.moving), there, here)
        if verdict.rewound is not None:
            there = torch.where(per_image(verdict.rewound), self.before, there)
        return replace(self, before=here, current=there)

    def only(self, keep: Tensor) -> _Going:
        """Some of them."""
        assert self.stop is not None
        whole = torch.arange(len(keep), device=keep.device) if self.rows is None else self.rows
        return _Going(
            self.loss.rows(keep),
            self.step[keep],
            self.room.rows(keep),
            self.stop.rows(keep),
            self.before[keep],
            self.current[keep],
            whole[keep],
        )


@dataclass(slots=True)
class _Gone:
    """Where the samples that have left ended up."""

    images: Images | None = None  # of the whole batch; those of who is going are out of date

    def see_off(self, going: _Going, ended: Tensor) -> _Going:
        """Keep the images of those who end here, and go on with the others."""
        if not bool(ended.any()):
            return going
        self.images = self.among(going)
        return going.only(~ended)

    def among(self, going: _Going) -> Images:
        """The whole batch: these, where they are now, among those who left before."""
        if self.images is None or going.rows is None:
            return going.current.detach()
        self.images[going.rows] = going.current
        return self.images


def _asked(model: LogitModel, current: Images, loss: AttackLoss) -> tuple[Images, Logits, Tensor]:
    """The images, the model's answers, and the slope of the loss there."""
    current = current.detach().requires_grad_()  # its own: the iterate before may be the same one
    with torch.enable_grad():
        logits = model(current)
        (slope,) = torch.autograd.grad(loss(logits).sum(), current)
    return current.detach(), logits.detach(), slope


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
