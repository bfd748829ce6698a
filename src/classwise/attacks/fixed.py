"""Attacks judged where they end, as papers report them: `clean`, `fgsm`, `pgd-20`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from classwise.attacks.ball import Ball, radii
from classwise.attacks.inner import starting_images
from classwise.attacks.losses import LogitGap
from classwise.attacks.pgd import pgd, step_sizes
from classwise.attacks.search import draw_keys
from classwise.attacks.suite import STANDING, Judged, ask, likeliest_others, per_sample
from classwise.attacks.walk import Pgd, Target, aims, attack_loss
from classwise.draws import Draws
from classwise.errors import ClasswiseError
from classwise.models.classifier import all_outputs
from classwise.spelling import QUARTER, Share
from classwise.types import Batch, Images, LogitModel, PerSample


class Condition(Protocol):
    """Something an audit can judge samples under."""

    @property
    def name(self) -> str:
        """The one spelling of it."""

    @property
    def eps(self) -> float | None:
        """A radius of its own; None takes the one it is given. Ask `radii_under`."""

    @property
    def verdict(self) -> str:
        """`last`: fooled by the final iterate; `any`: fooled by some iterate."""

    @property
    def needs_gradient(self) -> bool:
        """Whether it can be run on a black box."""

    def judge(
        self,
        model: LogitModel,
        batch: Batch,
        *,
        num_classes: int,
        radius: PerSample,
        ball: Ball,
        seed: int,
        width: int,
        after: Callable[[str, Tensor], None] | None = None,
    ) -> Judged:
        """Attack a batch, at most `width` samples at a time."""

    def perturb(
        self, model: LogitModel, batch: Batch, *, eps: float | PerSample, ball: Ball, seed: int
    ) -> Images:
        """Perturbed images of a batch."""


def radii_under(condition: Condition, eps: Any, ball: Ball, count: int) -> PerSample:
    """The radius of each image under a condition: the condition's own, or else `eps`."""
    return radii(eps if condition.eps is None else condition.eps, ball, count)


@dataclass(frozen=True, slots=True)
class NamedAttack:
    """One condition whose verdict is the final iterate; with restarts, that of any of them."""

    name: str
    steps: int
    start: Literal["none", "uniform"] = "uniform"
    step: float | Share = QUARTER  # in image units, or a share of the radius
    loss: Literal["ce", "cw"] = "ce"
    target: Target | None = None
    restarts: int = 1
    # `all` also climbs outputs behind the K classes, and `predicted` flees the model's own answer:
    # together the weak attack of the label-augmentation notebook, to show what it hides.
    logits: Literal["classes", "all"] = "classes"
    labels: Literal["given", "predicted"] = "given"
    eps: float | None = None  # its own radius; None takes what it is given
    verdict: str = "last"

    @property
    def needs_gradient(self) -> bool:
        """Clean images need none."""
        return self.steps > 0

    def as_search(self) -> Pgd:
        """Return the same attack with the verdict `any`."""
        if not self.steps or self.logits != "classes" or self.labels != "given":
            raise ClasswiseError(
                f"{self.name} is judged where it ends; leave out verdict=any, or the suite"
            )
        return Pgd(
            self.name,
            self.steps,
            start=self.start,
            step=self.step,
            loss=self.loss,
            target=self.target,
            restarts=self.restarts,
        )

    def judge(
        self,
        model: LogitModel,
        batch: Batch,
        *,
        num_classes: int,
        radius: PerSample,
        ball: Ball,
        seed: int,
        width: int,
        after: Callable[[str, Tensor], None] | None = None,
    ) -> Judged:
        """Judge the final iterates, also of images that were wrong from the beginning."""
        facts: dict[str, Any] = {"ball": ball, "seed": seed}
        images, logits = batch.images, batch.images.new_zeros(len(batch), num_classes)
        standing = torch.ones_like(batch.labels, dtype=torch.bool)
        spent = torch.zeros_like(batch.labels, dtype=torch.int32)
        for restart in range(self.restarts):
            if not bool(standing.any()):
                break  # nobody is left, and not every model takes an empty batch
            images = images.clone() if self.steps else images
            for rows in torch.split(standing.nonzero().squeeze(1), width):
                part = Batch(batch.images[rows], batch.labels[rows], batch.index[rows])
                moved = self.perturb(model, part, eps=radius[rows], restart=restart, **facts)
                answers = ask(model, moved, width, num_classes)
                logits[rows] = answers.to(logits.dtype)
                images[rows] = moved
                spent[rows] += self.steps
                standing[rows] = answers.argmax(1) == part.labels
        if after is not None:
            after(self.name, standing)
        fell_to = torch.where(standing, STANDING, 0)
        gap = -LogitGap(batch.labels)(logits)
        return Judged(logits.argmax(1), gap, spent, fell_to, (self.name,), images)

    def perturb(
        self,
        model: LogitModel,
        batch: Batch,
        *,
        eps: float | PerSample,
        ball: Ball,
        seed: int,
        restart: int = 0,
    ) -> Images:
        """Perturb a batch; the draws depend on seed, attack and sample only."""
        if not self.steps:
            return batch.images
        images, labels = batch.images, batch.labels
        radius = per_sample(eps, batch)
        seen = partial(all_outputs, model) if self.logits == "all" else model
        keyed = Batch(images, labels, draw_keys(batch.index, restart))
        family = self.name.partition("(")[0]
        aim = labels
        if self.labels == "predicted":
            with torch.no_grad():
                aim = seen(images).argmax(1)
        if self.target is not None:
            with torch.no_grad():
                rivals = likeliest_others(model(images), labels)
            aim = aims(self.target, labels, rivals, keyed.index, Draws(seed, f"target {family}"))
        return pgd(
            seen,
            images,
            attack_loss(self.loss, aim, targeted=self.target is not None),
            radius=radius,
            step=step_sizes(self.step, radius),
            steps=self.steps,
            start=starting_images(self.start, keyed, radius, ball, Draws(seed, f"attack {family}")),
            ball=ball,
        )
