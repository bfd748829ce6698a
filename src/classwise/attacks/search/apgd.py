"""Auto-PGD: gradient ascent with momentum that sets its own step (Croce and Hein, 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import ceil
from typing import Literal

import torch
from torch import Tensor

from classwise.attacks.ball import per_image
from classwise.attacks.losses import CrossEntropy
from classwise.attacks.search.dlr import dlr, targeted_dlr
from classwise.attacks.search.engine import Scene, into_ball, slope_at
from classwise.attacks.search.state import Bounded, Rows
from classwise.types import Images, Logits, PerSample

_MOMENTUM = 0.75  # α: share of the new direction
_ENOUGH = 0.75  # ρ: share of steps that must rise for the step to stay as it is


@dataclass(slots=True)
class Ascent(Bounded):
    """A sample on its way up."""

    before: Images  # x⁽ᵏ⁻¹⁾
    slope: Tensor
    height: PerSample  # f at the latest point
    best: Images
    best_slope: Tensor
    best_height: PerSample
    step: PerSample  # η
    rises: Tensor  # steps since the last checkpoint that raised f
    mark: PerSample  # best height at the last checkpoint
    halved: Tensor  # whether the last checkpoint halved the step


@dataclass(frozen=True, slots=True)
class Apgd:
    """APGD on one of three losses: cross-entropy, DLR, or targeted DLR with one round per target.

    z = P(x⁽ᵏ⁾ + η·s(∇f)),  x⁽ᵏ⁺¹⁾ = P(x⁽ᵏ⁾ + α(z − x⁽ᵏ⁾) + (1 − α)(x⁽ᵏ⁾ − x⁽ᵏ⁻¹⁾)), η = 2ε at
    first. At each checkpoint η halves, and the ascent returns to its best point, if fewer than
    ρ of the steps rose, or if neither η nor the best f has changed since the one before.
    """

    name: str
    loss: Literal["ce", "dlr", "dlr-t"]
    steps: int = 100
    restarts: int = 1
    targets: int = 9
    eot: int = 1  # passes whose gradients are averaged, for models that draw random numbers

    @property
    def evaluations(self) -> int:
        """The start and every step."""
        return self.steps + 1

    def rounds(self, num_classes: int) -> int:
        """One per restart, or one per target."""
        return min(self.targets, num_classes - 1) if self.loss == "dlr-t" else self.restarts

    def begin(self, scene: Scene, rows: Rows) -> Ascent:
        """Start from a random point of the ball."""
        images, ball = rows.images, scene.ball
        noise = scene.draws(self.name).uniform(rows.keys(), images.shape[1:], images.dtype)
        start = ball.project(images + ball.spread(noise, rows.radius), images, rows.radius)
        low, high = ball.bounds(rows.images, rows.radius)
        lowest = torch.full_like(rows.radius, float("-inf"))
        none = torch.zeros_like(rows.labels)
        return Ascent(
            rows,
            point=start,
            clock=none,
            low=low,
            high=high,
            before=start,
            slope=start,
            height=lowest,
            best=start,
            best_slope=start,
            best_height=lowest,
            step=2 * rows.radius,
            rises=none,
            mark=lowest,
            halved=none.bool(),
        )

    def evaluate(self, scene: Scene, state: Ascent) -> tuple[Logits, None]:
        """Measure height and slope, and remember the best point."""
        last = bool((state.clock == self.steps).all())
        logits, height, state.slope = slope_at(
            scene.model, state.point, lambda z: self._height(z, state.rows), self.eot, last=last
        )
        first = state.clock == 0
        state.rises = state.rises + ((height > state.height) & ~first)
        better = height > state.best_height
        state.best = torch.where(per_image(better), state.point, state.best)
        state.best_slope = torch.where(per_image(better), state.slope, state.best_slope)
        state.best_height = torch.maximum(height, state.best_height)
        state.mark = torch.where(first, height, state.mark)
        state.height = height
        state.clock = state.clock + 1
        return logits, None

    def advance(self, scene: Scene, state: Ascent) -> None:
        """Take a step; at a checkpoint decide on its size first."""
        window = _windows(self.steps).to(state.clock.device)[state.clock - 1]
        if bool((window > 0).any()):
            self._check(state, window)
        point = state.point
        ahead = scene.ball.uphill(state.slope, state.step).add_(point)
        ahead = into_ball(scene, state, ahead)
        share = torch.where(state.clock == 1, 1.0, _MOMENTUM).to(point.dtype)
        # x + α(z − x) + (1 − α)(x − x⁽ᵏ⁻¹⁾) = αz + (1 − α)(2x − x⁽ᵏ⁻¹⁾)
        swung = (2 * point).sub_(state.before).lerp_(ahead, per_image(share))
        state.before, state.point = point, into_ball(scene, state, swung)

    def _height(self, logits: Logits, rows: Rows) -> PerSample:
        if self.loss == "ce":
            return CrossEntropy(rows.labels)(logits)
        if self.loss == "dlr":
            return dlr(logits, rows.labels)
        return targeted_dlr(logits, rows.labels, rows.target())

    def _check(self, state: Ascent, window: Tensor) -> None:
        """Halve the step of samples that oscillate or stand still, and take them back."""
        here = window > 0
        few = state.rises < _ENOUGH * window
        still = ~state.halved & (state.best_height <= state.mark)
        halve = here & (few | still)
        state.step = torch.where(halve, state.step / 2, state.step)
        state.point = torch.where(per_image(halve), state.best, state.point)
        state.slope = torch.where(per_image(halve), state.best_slope, state.slope)
        state.height = torch.where(halve, state.best_height, state.height)
        state.halved = torch.where(here, halve, state.halved)
        state.mark = torch.where(here, state.best_height, state.mark)
        state.rises = state.rises.masked_fill(here, 0)


def checkpoints(steps: int) -> list[int]:
    """Steps after which the size is reconsidered, closer and closer together.

    w_j = ⌈p_j·N⌉, p_0 = 0, p_1 = 0.22, p_{j+1} = p_j + max(p_j − p_{j−1} − 0.03, 0.06)

    >>> checkpoints(100)
    [22, 41, 57, 70, 80, 87, 93, 99]
    """
    shares = [0.0, 0.22]
    while shares[-1] < 1:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 0.03, 0.06))
    # rounding first: 0.41·100 must not be 42
    found = [ceil(round(share * steps, 6)) for share in shares[1:]]
    return sorted({w for w in found if 0 < w < steps})


@lru_cache(maxsize=64)
def _windows(steps: int) -> Tensor:
    """At each step the number of steps since the checkpoint before; 0 where there is none."""
    windows = torch.zeros(steps + 1, dtype=torch.int64)
    for before, here in pairwise([0, *checkpoints(steps)]):
        windows[here] = here - before
    return windows
