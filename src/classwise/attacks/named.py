"""Attacks as an audit names them: `clean`, `fgsm`, `pgd-20`, `pgd-40(step=1/255)`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from classwise.attacks.ball import Ball
from classwise.attacks.inner import starting_images
from classwise.attacks.losses import CrossEntropy, LogitGap
from classwise.attacks.pgd import pgd
from classwise.draws import Draws
from classwise.errors import ClasswiseError, unknown
from classwise.models.classifier import all_outputs
from classwise.spelling import parse_call, split_outside_brackets
from classwise.types import Batch, Images, LogitModel

KNOWN_ATTACKS = {
    "clean": "the images as they are",
    "fgsm": "one step of the whole radius, from the image itself",
    "pgd-K": "K steps up the cross-entropy from a random start; options: step, start, logits, "
    "labels",
    "cw-K": "the same up the CW loss, best other logit minus the true one",
}
WORDS = {"logits": ("classes", "all"), "labels": ("given", "predicted")}  # the default first


@dataclass(frozen=True, slots=True)
class NamedAttack:
    """One condition of an audit."""

    name: str
    steps: int
    start: Literal["none", "uniform"] = "uniform"
    step: float | None = None  # in image units; None means a quarter of eps
    loss: Literal["ce", "cw"] = "ce"
    # `all` also climbs outputs behind the K classes, and `predicted` flees the model's own answer:
    # together the weak attack of the label-augmentation notebook, to show what it hides.
    logits: Literal["classes", "all"] = "classes"
    labels: Literal["given", "predicted"] = "given"

    def perturb(
        self, model: LogitModel, batch: Batch, *, eps: float, ball: Ball, seed: int
    ) -> Images:
        """Perturb a batch; the draws depend on seed, attack and sample only."""
        if not self.steps:
            return batch.images
        radius = torch.full(
            (len(batch),), eps, dtype=batch.images.dtype, device=batch.images.device
        )
        step = radius / 4 if self.step is None else torch.full_like(radius, self.step)
        seen = partial(all_outputs, model) if self.logits == "all" else model
        labels = batch.labels
        if self.labels == "predicted":
            with torch.no_grad():
                labels = seen(batch.images).argmax(1)
        return pgd(
            seen,
            batch.images,
            LogitGap(labels) if self.loss == "cw" else CrossEntropy(labels),
            radius=radius,
            step=radius if self.name == "fgsm" else step,
            steps=self.steps,
            start=starting_images(
                self.start, batch, radius, ball, Draws(seed, f"attack {self.name}")
            ),
            ball=ball,
        )


def parse_attack(text: str) -> NamedAttack:
    """Read one attack.

    >>> parse_attack("pgd-20").steps, parse_attack("fgsm").start
    (20, 'none')
    """
    call = parse_call(text)
    match = re.fullmatch(r"(pgd|cw)-(\d+)", call.name)
    allowed = {"step", "start", *WORDS} if match else set()
    for option in call.options:
        if option not in allowed:
            raise unknown(f"option of {call.name}", option, allowed or ["none"])
    if call.name == "clean":
        return NamedAttack("clean", 0, "none")
    if call.name == "fgsm":
        return NamedAttack("fgsm", 1, "none")
    if not match or int(match[2]) < 1 or call.args:
        raise unknown("attack", text, KNOWN_ATTACKS)
    start = call.options.get("start", "uniform") or "none"  # the word none reads as None
    if start not in ("none", "uniform"):
        raise unknown(f"start of {call.name}", str(start), ["none", "uniform"])
    for option, words in WORDS.items():
        if call.options.get(option, words[0]) not in words:
            raise unknown(f"{option} of {call.name}", str(call.options[option]), words)
    step = call.options.get("step")
    if step is not None and (not isinstance(step, int | float) or not 0 < step < 1):
        raise ClasswiseError(
            f"{text}: step is {step!r}; give a number between 0 and 1, such as 2/255"
        )
    loss: Literal["ce", "cw"] = "cw" if match[1] == "cw" else "ce"
    words_given = {option: call.options[option] for option in WORDS if option in call.options}
    return NamedAttack(text.replace(" ", ""), int(match[2]), start, step, loss, **words_given)


def parse_attacks(attacks: str | list[str] | tuple[str, ...]) -> list[NamedAttack]:
    """Read a comma-separated list, or a list of names; no attack may appear twice."""
    names = split_outside_brackets(attacks, ",") if isinstance(attacks, str) else attacks
    parsed = [parse_attack(name.strip()) for name in names if name.strip()]
    if not parsed:
        raise ClasswiseError(f"no attack given; known: {', '.join(KNOWN_ATTACKS)}")
    if len({attack.name for attack in parsed}) < len(parsed):
        raise ClasswiseError(f"an attack is named twice in {', '.join(a.name for a in parsed)}")
    return parsed
