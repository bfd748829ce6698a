"""FAB: the nearest point beyond the boundary to one class (Croce and Hein, 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from classwise.attacks.ball import per_image
from classwise.attacks.search.engine import Scene, slope_at
from classwise.attacks.search.state import Rows, State
from classwise.types import Logits, PerSample

_OVERSHOOT = 1.05  # η: how far past the linearised boundary
_PULL = 0.1  # α_max: the largest share of the step taken from the image itself
_BACK = 0.9  # β: how much of its way a fooled point keeps


@dataclass(slots=True)
class Approach(State):
    """A sample near the boundary to its target."""

    wrong: Tensor  # the point is beyond the boundary, but outside the ball


@dataclass(frozen=True, slots=True)
class Fab:
    """Targeted FAB, one round per target; a sample falls when a point beyond lies in its ball.

    With d = z_t − z_y linearised at x⁽ⁱ⁾ and π = {d = 0}: δ = proj_π(x⁽ⁱ⁾) − x⁽ⁱ⁾,
    δ₀ = proj_π(x) − x, α = min(‖δ‖/(‖δ‖ + ‖δ₀‖), α_max),
    x⁽ⁱ⁺¹⁾ = clip((1 − α)(x⁽ⁱ⁾ + ηδ) + α(x + ηδ₀)); a fooled point goes back to (1 − β)x + βx⁽ⁱ⁺¹⁾.
    """

    name: str = "fab-t"
    steps: int = 100
    targets: int = 9

    @property
    def evaluations(self) -> int:
        """The image and every step."""
        return self.steps + 1

    def rounds(self, num_classes: int) -> int:
        """One per target."""
        return min(self.targets, num_classes - 1)

    def begin(self, scene: Scene, rows: Rows) -> Approach:  # noqa: ARG002
        """Start at the image."""
        none = torch.zeros_like(rows.labels)
        return Approach(rows, rows.images, none, none.bool())

    def evaluate(self, scene: Scene, state: Approach) -> tuple[Logits, Tensor]:
        """Look where the points are."""
        with torch.no_grad():
            logits = scene.model(state.point)
        state.wrong = logits.argmax(1) != state.rows.labels
        state.clock = state.clock + 1
        reached = scene.ball.distance(state.point - state.rows.images)
        return logits, reached <= state.rows.radius

    def advance(self, scene: Scene, state: Approach) -> None:
        """Step to the linearised boundary, drawn towards the image."""
        rows = state.rows
        images, aim = rows.images, torch.stack((rows.target(), rows.labels), 1)
        back = torch.ones_like(rows.radius).masked_fill_(state.wrong, _BACK)
        point = torch.lerp(images, state.point, per_image(back))
        _, height, slope = slope_at(scene.model, point, lambda z: _lead(z, aim))
        # two planes in one call: seen from the point, and from the image
        moved = (slope * (point - images)).sum((1, 2, 3))
        both = scene.ball.toward_plane(
            torch.cat((point, images)),
            torch.cat((slope, slope)),
            torch.cat((-height, moved - height)),
        )
        here, there = both.chunk(2)
        near, far = scene.ball.distance(here), scene.ball.distance(there)
        pull = per_image((near / (near + far).clamp(min=1e-30)).clamp(max=_PULL))
        ahead = point + _OVERSHOOT * here
        state.point = ahead.lerp_(images + _OVERSHOOT * there, pull).clamp_(0, 1)


def _lead(logits: Logits, aim: Tensor) -> PerSample:
    """Return the target's logit minus the true one."""
    both = logits.gather(1, aim)
    return both[:, 0] - both[:, 1]
