"""Attacks judged where they end, as papers report them: `fgsm`, `pgd-20`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from classwise.attacks.condition import Traits
from classwise.attacks.inner import starting_images
from classwise.attacks.judged import STANDING, Judged, Tell
from classwise.attacks.losses import LogitGap
from classwise.attacks.pgd import pgd, step_sizes
from classwise.attacks.search.pgd import Pgd, Target, aims, attack_loss
from classwise.attacks.search.state import draw_keys
from classwise.attacks.targets import likeliest_others
from classwise.attacks.threat import Threat
from classwise.draws import Draws
from classwise.errors import ClasswiseError
from classwise.models.classifier import all_outputs
from classwise.models.subject import Subject
from classwise.spelling import QUARTER, Share
from classwise.types import Batch, Images


@dataclass(frozen=True, slots=True)
class FixedSteps:
    """PGD whose verdict is the final iterate; with restarts, that of any of them."""

    name: str
    traits: Traits
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
    verdict: str = "last"
    needs_gradient: bool = True
    by_batch: bool = False

    @property
    def identity(self) -> str:
        """All its settings are in its name."""
        return self.name

    def as_search(self) -> Pgd:
        """Return the same attack with the verdict `any`."""
        if self.logits != "classes" or self.labels != "given":
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
        self, subject: Subject, batch: Batch, threat: Threat, seed: int, tell: Tell
    ) -> Judged:
        """Judge the final iterates, also of images that were wrong from the beginning."""
        images, logits = batch.images, batch.images.new_zeros(len(batch), subject.num_classes)
        standing = torch.ones_like(batch.labels, dtype=torch.bool)
        spent = torch.zeros_like(batch.labels, dtype=torch.int32)
        for restart in range(self.restarts):
            if not bool(standing.any()):
                break  # nobody is left, and not every model takes an empty batch
            images = images.clone()
            for rows in torch.split(standing.nonzero().squeeze(1), subject.at_once(images)):
                part = Batch(batch.images[rows], batch.labels[rows], batch.index[rows])
                moved = self._moved(subject, part, threat, seed, restart)
                answers = subject.ask(moved)
                logits[rows] = answers.to(logits.dtype)
                images[rows] = moved
                spent[rows] += self.steps
                standing[rows] = answers.argmax(1) == part.labels
        tell(self.name, standing)
        fell_to = torch.where(standing, STANDING, 0)
        gap = -LogitGap(batch.labels)(logits)
        return Judged(logits.argmax(1), gap, spent, fell_to, (self.name,), images)

    def _moved(
        self, subject: Subject, batch: Batch, threat: Threat, seed: int, restart: int
    ) -> Images:
        """Perturb a batch; the draws depend on seed, attack and sample only."""
        images, labels = batch.images, batch.labels
        # The search asks the quicker twin; the model itself judges what comes of it.
        model = subject.logits if self.logits == "all" else subject.quick(images)
        radius = threat.like(images, batch.index)
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
        draws = Draws(seed, f"attack {family}")
        return pgd(
            seen,
            images,
            attack_loss(self.loss, aim, targeted=self.target is not None),
            radius=radius,
            step=step_sizes(self.step, radius),
            steps=self.steps,
            start=starting_images(self.start, keyed, radius, threat.ball, draws),
            ball=threat.ball,
        )
