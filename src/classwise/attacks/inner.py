"""The attack inside training: parts with one owner each, and the views it emits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from classwise.attacks.ball import Ball
from classwise.attacks.losses import Amplified, AttackLoss, CrossEntropy, Divergence
from classwise.attacks.pgd import pgd
from classwise.attacks.stops import LimitedWatch, StopRule, StopWatch
from classwise.attacks.targets import draw_targets
from classwise.draws import Draws
from classwise.models.asking import BatchNormMode, batchnorm_mode
from classwise.stages import Schedule, value_at
from classwise.types import Batch, Images, Logits, PerSample

Reference: TypeAlias = Literal["label", "clean", "teacher"]
Start: TypeAlias = Literal["none", "uniform", "gaussian", "clipped gaussian"]


@dataclass(frozen=True, slots=True)
class View:
    """One perturbed version of the batch; each has its own stop rule and its own noise."""

    name: str
    stop: StopRule | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """Where in training we are: the keys of every random draw."""

    seed: int
    epoch: int
    epochs: int

    def draws(self, purpose: str) -> Draws:
        """Random numbers for one purpose in this epoch."""
        return Draws(self.seed, purpose, self.epoch)


@dataclass(frozen=True, slots=True)
class InnerAttack:
    """How training examples are perturbed."""

    reference: Reference  # climb CE to the label, or KL to the clean or the teacher's prediction
    start: Start
    steps: int | Schedule  # T
    batchnorm: BatchNormMode
    views: tuple[View, ...] = (View("robust"),)
    jitter: float = 0.0  # ω, noise added at every update
    last_look: bool = False  # unless nobody moved any more, the last iterates are forwarded, too

    def perturb(
        self,
        model: nn.Module,
        batch: Batch,
        moment: Moment,
        *,
        radius: PerSample,
        step: PerSample,
        ball: Ball,
        target_odds: Tensor | None = None,  # a row per sample
        teacher: Logits | None = None,
        finer: PerSample | None = None,
        recalled: Tensor | None = None,
        amplified: float = 1.0,
    ) -> dict[str, Images]:
        """Perturbed images by view, detached, in batch order; weights stay untouched.

        `finer` says of a sample that it takes n times as many steps, each 2/n as long (none where
        n is 1). `recalled` are offsets to begin from, NaN where the attack's own start begins. The
        loss is `amplified` where half precision would lose its slopes.
        """
        pace = _Pace.of(self.steps_at(moment), step, finer)
        with batchnorm_mode(model, self.batchnorm):
            # without a step nobody asks for the loss, whose clean prediction costs a forward
            loss: AttackLoss = CrossEntropy(batch.labels)
            if pace.steps:
                loss = self._loss(model, batch, moment, target_odds, teacher)
                loss = loss if amplified == 1 else Amplified(loss, amplified)
            return {
                view.name: pgd(
                    model,
                    batch.images,
                    loss,
                    radius=radius,
                    step=pace.step,
                    steps=pace.steps,
                    start=resumed(
                        starting_images(
                            self.start, batch, radius, ball, moment.draws(_purpose("start", view))
                        ),
                        *(batch.images, recalled, radius, ball),
                    ),
                    ball=ball,
                    stop=pace.limited(
                        view.stop.watch(batch.labels, moment.epoch, moment.epochs)
                        if view.stop
                        else None
                    ),
                    jitter=self._jitter(batch, moment, view),
                    alone=self.batchnorm == "eval",
                    last_look=self.last_look,
                )
                for view in self.views
            }

    def steps_at(self, moment: Moment) -> int:
        """T of an epoch."""
        return value_at(self.steps, moment.epoch, moment.epochs)

    def _loss(
        self,
        model: nn.Module,
        batch: Batch,
        moment: Moment,
        target_odds: Tensor | None,
        teacher: Logits | None,
    ) -> AttackLoss:
        # Target odds, where some policy writes them, replace the reference and its direction.
        if target_odds is not None:
            draws = moment.draws("targets")
            targets = draw_targets(batch.labels, target_odds, draws, batch.index)
            return CrossEntropy(targets, targeted=True)
        if self.reference == "label":
            return CrossEntropy(batch.labels)
        if self.reference == "teacher":
            assert teacher is not None
            return Divergence(teacher)
        with torch.no_grad():
            clean: Logits = model(batch.images)
        return Divergence(clean)

    def _jitter(self, batch: Batch, moment: Moment, view: View) -> _Jitter | None:
        return _Jitter(self.jitter, batch, moment, view) if self.jitter else None


@dataclass(frozen=True, slots=True)
class _Pace:
    """How many steps a batch takes, how long they are, and how many of them each sample has."""

    steps: int
    step: PerSample
    own: Tensor | None = None  # steps of each sample, where they differ from `steps`

    @classmethod
    def of(cls, steps: int, step: PerSample, finer: PerSample | None) -> _Pace:
        if finer is None:
            return cls(steps, step)
        # n steps of 2α/n go twice as far as one of α: ten instead of FGSM's 5ε/4 are AT's of ε/4
        shorter = torch.where(finer > 1, 2 * step / finer, step)
        return cls(steps * int(finer.max()), shorter, steps * finer)

    def limited(self, watch: StopWatch | None) -> StopWatch | None:
        return watch if self.own is None else LimitedWatch(self.own, watch)


@dataclass(frozen=True, slots=True)
class _Jitter:
    size: float
    batch: Batch
    moment: Moment
    view: View

    def __call__(self, number: int, rows: Tensor | None) -> Tensor:
        draws = self.moment.draws(f"{_purpose('jitter', self.view)} {number}")
        images, index = self.batch.images, self.batch.index
        whose = index if rows is None else index[rows]
        return self.size * draws.normal(whose, images.shape[1:], images.dtype)


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
    # 0.001·N(0, 1): TRADES does not clip it before the first forward, FAT and BAT do.
    near = batch.images + 0.001 * draws.normal(batch.index, shape, dtype)
    return near.clamp_(0, 1) if start == "clipped gaussian" else near


def resumed(
    start: Images | None, images: Images, recalled: Tensor | None, radius: PerSample, ball: Ball
) -> Images | None:
    """Begin at recalled offsets, as far as the ball of now allows; at `start` where one is NaN."""
    if recalled is None:
        return start
    there = ball.project(images + recalled, images, radius)
    return torch.where(recalled.isnan(), images if start is None else start, there)


def with_stop(views: Sequence[View], stop: StopRule | None) -> tuple[View, ...]:
    """The robust view with this stop rule, and the other views as they are."""
    return (View("robust", stop), *views)


def _purpose(word: str, view: View) -> str:
    """Each view draws its own noise; the plain one keeps the short name."""
    return word if view.name == "robust" else f"{word} {view.name}"
