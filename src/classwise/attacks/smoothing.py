"""Both bounds of one smoothed classifier: `smoothing` certifies it, `smoothed-pgd-K` attacks it.

g(x) = argmax_c P(f(x + σ·z) = c), z ~ N(0, I). Only L2 balls can be certified like this.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import torch

from classwise.attacks.ball import L2_BALL
from classwise.attacks.condition import CERTIFIED, Attack, Traits
from classwise.attacks.judged import STANDING, Judged, Tell
from classwise.attacks.losses import CrossEntropy, LogitGap
from classwise.attacks.noise import MeanAnswer, noisy_counts
from classwise.attacks.options import Option, canonical, read_options, said_options
from classwise.attacks.pgd import pgd, step_sizes
from classwise.attacks.threat import Threat
from classwise.draws import Draws
from classwise.errors import ClasswiseError
from classwise.models.subject import Subject
from classwise.spelling import QUARTER, Call, Share, spell_eps
from classwise.types import Batch, Images, Labels

_MOST = 10_000_000  # draws for one image
_NOISE = {
    "eps": Option(None, radius=True),
    "sigma": Option(0.25, above=0, below=inf, plain=True),
    "n": Option(1000, least=1, most=_MOST),
    "alpha": Option(0.001, above=0, below=1, plain=True),
}
SMOOTHING = _NOISE | {"n0": Option(100, least=1, most=_MOST)}
SMOOTHED_PGD = _NOISE | {
    "m": Option(16, least=1, most=4096),
    "step": Option(QUARTER, above=0, below=inf, share=True),
}
_MOST_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class Smoothing:
    """CERTIFY of Cohen, Rosenfeld and Kolter (ICML 2019), for every image of a batch."""

    name: str
    traits: Traits
    sigma: float  # σ
    draws: int  # n, to bound the share of the class
    chosen_on: int  # n₀, to choose the class; none of them among the n
    alpha: float  # α
    verdict: str = CERTIFIED
    needs_gradient: bool = False
    by_batch: bool = False

    @property
    def identity(self) -> str:
        """All its settings are in its name."""
        return self.name

    def judge(
        self, subject: Subject, batch: Batch, threat: Threat, seed: int, tell: Tell
    ) -> Judged:
        """An image stands where its label is certified as far as its radius.

        The class is the one that is certified, if that is another, and K where none is, or the
        label not far enough.
        """
        from classwise.statistics.smoothing import certify  # scipy takes a second to import

        selection = noisy_counts(
            subject, batch, self.sigma, self.chosen_on, Draws(seed, "smoothing selection")
        )
        counts = noisy_counts(
            subject, batch, self.sigma, self.draws, Draws(seed, "smoothing estimation")
        )
        found = certify(selection.cpu().numpy(), counts.cpu().numpy(), self.sigma, self.alpha)
        labels = batch.labels.cpu().numpy()
        radius = np.where(found.classes == labels, found.radius, 0.0)
        certified = (radius > 0) & (radius >= threat.at(batch.index).numpy())
        none = found.abstained | (found.classes == labels)
        predicted = np.where(certified, labels, np.where(none, subject.num_classes, found.classes))
        return _judged(
            self.name, batch, counts, predicted, self.chosen_on + self.draws, tell, radius
        )


@dataclass(frozen=True, slots=True)
class SmoothedPgd:
    """PGD up −log of the mean probability under noise; fresh noise must confirm that it succeeded.

    An image falls only where PREDICT, on draws that the attack has not seen, names another class.
    Where it abstains, the image stands.
    """

    name: str
    traits: Traits
    steps: int
    sigma: float  # σ
    draws: int  # n, to confirm
    alpha: float  # α
    at_a_step: int  # m
    step: float | Share = QUARTER
    verdict: str = "last"
    needs_gradient: bool = True
    by_batch: bool = False

    @property
    def identity(self) -> str:
        """All its settings are in its name."""
        return self.name

    def judge(
        self, subject: Subject, batch: Batch, threat: Threat, seed: int, tell: Tell
    ) -> Judged:
        """Attack every image, and ask about the final iterate under fresh noise."""
        from classwise.statistics.smoothing import predict  # scipy takes a second to import

        few = max(1, subject.at_once(batch.images) // self.at_a_step)
        moved = batch.images.clone()
        for rows in torch.split(torch.arange(len(batch), device=moved.device), few):
            part = Batch(batch.images[rows], batch.labels[rows], batch.index[rows])
            moved[rows] = self._moved(subject, part, threat, seed)
        there = Batch(moved, batch.labels, batch.index)
        counts = noisy_counts(
            subject, there, self.sigma, self.draws, Draws(seed, "smoothing confirmation")
        )
        classes, sure = predict(counts.cpu().numpy(), self.alpha)
        labels = batch.labels.cpu().numpy()
        predicted = np.where(sure, classes, labels)
        return _judged(self.name, there, counts, predicted, self.steps, tell)

    def _moved(self, subject: Subject, batch: Batch, threat: Threat, seed: int) -> Images:
        images, radius = batch.images, threat.like(batch.images, batch.index)
        draws = Draws(seed, "smoothing attack")
        return pgd(
            MeanAnswer(subject.quick(images), batch.index, self.sigma, self.at_a_step, draws),
            images,
            CrossEntropy(batch.labels),
            radius=radius,
            step=step_sizes(self.step, radius),
            steps=self.steps,
            ball=threat.ball,
        )


def _judged(
    name: str,
    batch: Batch,
    counts: Labels,
    predicted: np.ndarray,
    spent: int,
    tell: Tell,
    radius: np.ndarray | None = None,
) -> Judged:
    """What was found, as tensors; the gap is that of the shares of answers."""
    called = torch.from_numpy(predicted).to(batch.labels)
    standing = called == batch.labels
    tell(name, standing)
    shares = counts / counts.sum(1, keepdim=True)
    return Judged(
        called,
        -LogitGap(batch.labels)(shares),
        torch.full_like(batch.labels, spent, dtype=torch.int32),
        torch.where(standing, STANDING, 0),
        (name,),
        batch.images,
        certified_radius=None if radius is None else torch.from_numpy(radius),
    )


def read_smoothing(call: Call) -> tuple[Attack, float | None]:
    """Read `smoothing(sigma=0.25)`, and the radius that it states."""
    values = read_options(call, SMOOTHING)
    attack = Smoothing(
        canonical(call.name, values, SMOOTHING),
        _traits("smoothing", 0, values, SMOOTHING),
        values["sigma"],
        values["n"],
        values["n0"],
        values["alpha"],
    )
    return attack, values["eps"]


def read_smoothed_pgd(call: Call, steps: int) -> tuple[Attack, float | None]:
    """Read `smoothed-pgd-20(sigma=0.25)`, and the radius that it states."""
    if steps > _MOST_STEPS:
        raise ClasswiseError(f"{call.name}: {_MOST_STEPS} steps are the most")
    values = read_options(call, SMOOTHED_PGD)
    attack = SmoothedPgd(
        canonical(call.name, values, SMOOTHED_PGD),
        _traits("smoothed-pgd", steps, values, SMOOTHED_PGD),
        steps,
        values["sigma"],
        values["n"],
        values["alpha"],
        values["m"],
        values["step"],
    )
    return attack, values["eps"]


def check_ball(attack: Attack, threat: Threat) -> None:
    """Refuse a ball that Gaussian noise says nothing about, and a radius that nothing can reach."""
    if not isinstance(attack, Smoothing | SmoothedPgd):
        return
    if threat.ball is not L2_BALL:
        raise ClasswiseError(
            f"{attack.name} smooths with Gaussian noise, which certifies L2 balls and not "
            f"{threat.ball.name} ones; audit under L2 (--norm L2, norm='L2') with a radius such as "
            "0.25"
        )
    if isinstance(attack, Smoothing):
        from classwise.statistics.smoothing import farthest

        most = farthest(attack.sigma, attack.draws, attack.alpha)
        stated = threat.stated
        nearest = min(stated) if isinstance(stated, list) else stated
        if nearest > most:
            raise ClasswiseError(
                f"{attack.name} can certify no radius above {most:.4g}, even where all "
                f"{attack.draws} answers agree, and eps is {spell_eps(nearest)}; raise sigma or n, "
                "or lower eps"
            )


def _traits(family: str, steps: int, values: dict[str, Any], table: dict[str, Option]) -> Traits:
    said = said_options(values, table)
    others = ",".join(f"{option}={value}" for option, value in said.items() if option != "eps")
    return Traits(family, steps, others, sigma=values["sigma"], alpha=values["alpha"])
