"""The attack inside training: five parts, each with one owner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from classwise.attacks.ball import Ball
from classwise.attacks.losses import AttackLoss, CrossEntropy, Divergence
from classwise.attacks.pgd import BatchNormMode, StopWatch, batchnorm_mode, pgd
from classwise.attacks.targets import draw_targets
from classwise.draws import Draws
from classwise.types import Batch, Images, Labels, Logits, PerSample


class StopRule(Protocol):
    """When a sample's attack ends before the last step."""

    def watch(self, labels: Labels) -> StopWatch:
        """Begin to watch one batch."""


@dataclass(frozen=True, slots=True)
class InnerAttack:
    """How training examples are perturbed."""

    reference: Literal["label", "clean"]  # climb CE to the label, or KL to the clean prediction
    start: Literal["none", "uniform", "gaussian"]
    steps: int  # T
    batchnorm: BatchNormMode
    stop: StopRule | None = None

    def robust_view(
        self,
        model: nn.Module,
        batch: Batch,
        *,
        radius: PerSample,
        step: PerSample,
        target_odds: Tensor | None,  # a row per sample
        ball: Ball,
        seed: int,
        epoch: int,
    ) -> Images:
        """Perturbed images, detached, in batch order; gradients and weights stay untouched."""
        with batchnorm_mode(model, self.batchnorm):
            return pgd(
                model,
                batch.images,
                self._loss(model, batch, target_odds, seed, epoch),
                radius=radius,
                step=step,
                steps=self.steps,
                start=starting_images(self.start, batch, radius, ball, Draws(seed, "start", epoch)),
                ball=ball,
                stop=self.stop.watch(batch.labels) if self.stop else None,
            )

    def _loss(
        self,
        model: nn.Module,
        batch: Batch,
        target_odds: Tensor | None,
        seed: int,
        epoch: int,
    ) -> AttackLoss:
        # Target odds, where some policy writes them, replace the reference and its direction.
        if target_odds is not None:
            draws = Draws(seed, "targets", epoch)
            return CrossEntropy(
                draw_targets(batch.labels, target_odds, draws, batch.index), targeted=True
            )
        if self.reference == "label":
            return CrossEntropy(batch.labels)
        with torch.no_grad():
            clean: Logits = model(batch.images)
        return Divergence(clean)


def starting_images(
    start: str, batch: Batch, radius: PerSample, ball: Ball, draws: Draws
) -> Images | None:
    """Where an attack begins: the image, a random point of its ball, or very near the image."""
    shape, dtype = batch.images.shape[1:], batch.images.dtype
    if start == "none":
        return None
    if start == "uniform":
        noise = draws.uniform(batch.index, shape, dtype)
        return ball.project(batch.images + ball.spread(noise, radius), batch.images, radius)
    # 0.001·N(0, 1), not clipped before the first forward, as in the released TRADES code.
    return batch.images + 0.001 * draws.normal(batch.index, shape, dtype)
