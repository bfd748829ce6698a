"""DeepFool: step after step across the nearest linearised boundary (Moosavi-Dezfooli et al.)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from classwise.attacks.search.engine import Scene, slope_at
from classwise.attacks.search.state import Rows, State
from classwise.types import Logits


@dataclass(slots=True)
class Crossing(State):
    """A sample and the sum of its steps."""

    total: Tensor  # r, without the overshoot


@dataclass(frozen=True, slots=True)
class DeepFool:
    """Cross the boundary that looks nearest; a sample falls if it is crossed inside the ball.

    With d_k = z_k − z_y and w_k = ∇d_k: k* = argmin |d_k|/‖w_k‖_q over the likeliest classes,
    r ← r + the shortest step to {⟨w, δ⟩ = −d} inside the cube, x' = clip(x + (1 + overshoot)·r).
    Away from the faces of the cube the step is |d|/‖w‖₂²·w (L2) or |d|/‖w‖₁·sign w (Linf).
    """

    name: str = "deepfool"
    steps: int = 50
    targets: int = 9
    overshoot: float = 0.02

    @property
    def evaluations(self) -> int:
        """The image and every step."""
        return self.steps + 1

    def rounds(self, num_classes: int) -> int:  # noqa: ARG002
        """Once is all there is: it draws nothing."""
        return 1

    def begin(self, scene: Scene, rows: Rows) -> Crossing:  # noqa: ARG002
        """Start at the image."""
        none = torch.zeros_like(rows.labels)
        return Crossing(rows, rows.images, none, torch.zeros_like(rows.images))

    def evaluate(self, scene: Scene, state: Crossing) -> tuple[Logits, Tensor]:
        """Look where the points are."""
        with torch.no_grad():
            logits = scene.model(state.point)
        state.clock = state.clock + 1
        reached = scene.ball.distance(state.point - state.rows.images)
        return logits, reached <= state.rows.radius

    def advance(self, scene: Scene, state: Crossing) -> None:
        """Add the shortest of the steps to the boundaries of the candidate classes."""
        rows = state.rows
        rivals = rows.rivals[:, : self.targets]
        count = rivals.shape[1]
        # a copy of the point per candidate: one pass gives all their slopes
        copies = state.point.repeat_interleave(count, dim=0)
        pairs = torch.stack((rivals, rows.labels[:, None].expand_as(rivals)), -1).view(-1, 2)
        _, lead, slope = slope_at(
            scene.model, copies, lambda z: z.gather(1, pairs).diff(dim=1).neg().squeeze(1)
        )
        nearest = (lead.abs() / scene.ball.dual(slope).clamp(min=1e-30)).view(-1, count).argmin(1)
        chosen = torch.arange(len(rivals), device=rivals.device) * count + nearest
        step = scene.ball.toward_plane(state.point, slope[chosen], -lead[chosen])
        state.total = state.total + step
        state.point = (rows.images + (1 + self.overshoot) * state.total).clamp_(0, 1)
