"""PGD judged at every iterate: a sample is free to go as soon as it has fallen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from classwise.attacks.losses import AttackLoss, CrossEntropy, LogitGap
from classwise.attacks.pgd import step_sizes
from classwise.attacks.search.engine import Scene, into_ball, slope_at
from classwise.attacks.search.state import Bounded, Rows
from classwise.attacks.targets import draw_targets
from classwise.draws import Draws
from classwise.errors import ClasswiseError
from classwise.spelling import QUARTER, Share
from classwise.types import Labels, Logits

# A class number, or: the likeliest other class on the clean image, the least likely, a random one.
# Images of the class with that number are sent to their likeliest other class: no attack should
# push an image towards its own label.
Target: TypeAlias = int | Literal["likely", "unlikely", "random"]


@dataclass(slots=True)
class Walk(Bounded):
    """A sample on its way."""

    aim: Labels  # the label to flee, or the target to reach
    slope: Tensor


@dataclass(frozen=True, slots=True)
class Pgd:
    """K steps of PGD from every start, looked at before the first step and after each."""

    name: str
    steps: int
    start: Literal["none", "uniform"] = "uniform"
    step: float | Share = QUARTER  # in image units, or a share of the radius
    loss: Literal["ce", "cw"] = "ce"
    target: Target | None = None
    restarts: int = 1

    @property
    def evaluations(self) -> int:
        """The start and every step."""
        return self.steps + 1

    def rounds(self, num_classes: int) -> int:  # noqa: ARG002
        """One per restart."""
        return self.restarts

    def begin(self, scene: Scene, rows: Rows) -> Walk:
        """Start at the image or at a random point of its ball."""
        point, ball = rows.images, scene.ball
        if self.start == "uniform":
            # the same draws as PGD judged at its last iterate, so that both walk the same way
            noise = scene.draws(self.name).uniform(rows.keys(), point.shape[1:], point.dtype)
            point = ball.project(point + ball.spread(noise, rows.radius), point, rows.radius)
        aim = rows.labels
        if self.target is not None:
            draws = scene.draws(self.name, "target")
            aim = aims(self.target, rows.labels, rows.rivals, rows.keys(), draws)
        return Walk(
            rows,
            point,
            torch.zeros_like(rows.labels),
            *ball.bounds(rows.images, rows.radius),
            aim,
            point,
        )

    def evaluate(self, scene: Scene, state: Walk) -> tuple[Logits, None]:
        """Measure the slope."""
        loss = attack_loss(self.loss, state.aim, targeted=self.target is not None)
        last = bool((state.clock == self.steps).all())
        logits, _, state.slope = slope_at(scene.model, state.point, loss, last=last)
        state.clock = state.clock + 1
        return logits, None

    def advance(self, scene: Scene, state: Walk) -> None:
        """Step uphill and back into the ball."""
        step = step_sizes(self.step, state.rows.radius)
        moved = scene.ball.uphill(state.slope, step).add_(state.point)
        state.point = into_ball(scene, state, moved)


def attack_loss(kind: str, aim: Labels, *, targeted: bool) -> AttackLoss:
    """Build the loss to climb: away from `aim`, or, targeted, towards it."""
    return LogitGap(aim) if kind == "cw" else CrossEntropy(aim, targeted)


def aims(target: Target, labels: Labels, rivals: Labels, keys: Labels, draws: Draws) -> Labels:
    """One target per sample; `rivals` are the other classes, the likeliest first.

    >>> rivals = torch.tensor([[2, 1]])
    >>> aims("unlikely", torch.tensor([0]), rivals, torch.tensor([7]), Draws(0, "t")).item()
    1
    """
    if isinstance(target, int):
        if target > rivals.shape[1]:
            raise ClasswiseError(
                f"target={target}, but there are {rivals.shape[1] + 1} classes; "
                f"give a number from 0 to {rivals.shape[1]}, likely, unlikely or random"
            )
        return torch.where(labels == target, rivals[:, 0], target)
    if target == "random":
        odds = torch.ones(len(labels), rivals.shape[1] + 1, device=labels.device)
        return draw_targets(labels, odds, draws, keys)
    return rivals[:, 0 if target == "likely" else -1]
