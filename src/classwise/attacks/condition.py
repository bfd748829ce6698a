"""How an image reaches the model under audit: as it is, shifted, attacked, or both.

A condition is read once, where the user's words come in; from there on this record travels.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Protocol, TypeAlias

import torch

from classwise.attacks.judged import STANDING, Judged, Tell, tell_nobody
from classwise.attacks.losses import LogitGap
from classwise.attacks.threat import Threat
from classwise.data.view import View
from classwise.models.subject import Subject
from classwise.spelling import spell_eps
from classwise.types import Batch

Kind: TypeAlias = Literal[
    "clean", "attack", "shift", "shifted attack", "certificate", "shifted certificate"
]
CERTIFIED = "certified"  # the verdict of what proves that no attack succeeds


@dataclass(frozen=True, slots=True)
class Traits:
    """What a record says of a condition beside its name, so that nobody takes the name apart."""

    family: str  # pgd, apgd, square, … or the name of a shift
    strength: float = 0.0  # steps of an attack, severity of a shift; 0 where neither is stated
    options: str = ""  # what else sets it apart from others of its family, but for the radius
    weakened: bool = False  # some option makes it weaker than the plain attack
    sigma: float = 0.0  # it is about the classifier smoothed with this noise; 0: the model itself
    alpha: float = 0.0  # chance that a verdict on one sample is wrong; 0 where none is left to it


class Attack(Protocol):
    """Something that moves an image inside a ball until the model is wrong."""

    @property
    def name(self) -> str:
        """The one spelling of it."""

    @property
    def identity(self) -> str:
        """Its name with everything that decides what it does."""

    @property
    def traits(self) -> Traits:
        """What a record says of it."""

    @property
    def verdict(self) -> str:
        """`last`: fooled by the final iterate; `any`: by some; `certified`: proved by none."""

    @property
    def needs_gradient(self) -> bool:
        """Whether it can be run on a black box."""

    @property
    def by_batch(self) -> bool:
        """Whether its draws depend on the batch, so that its batches must not change."""

    def judge(
        self, subject: Subject, batch: Batch, threat: Threat, seed: int, tell: Tell
    ) -> Judged:
        """Attack a batch, at most `subject.width` samples at a time."""


class Shift(Protocol):
    """Which image stands for a sample: a corruption of it, or its row in a file."""

    @property
    def name(self) -> str:
        """The one spelling of it."""

    @property
    def identity(self) -> str:
        """Sixteen hex digits over everything that decides what it does."""

    @property
    def traits(self) -> Traits:
        """What a record says of it."""

    def check(self, data: View) -> None:
        """Refuse data that it is not for, before anything runs."""

    def images(self, batch: Batch, seed: int) -> Batch:
        """The images that stand for these; same labels, same numbers."""


@dataclass(frozen=True)
class Condition:
    """A shift, an attack with its threat, both or neither; `Condition()` is the clean image.

    >>> Condition().name, Condition().kind
    ('clean', 'clean')
    """

    shift: Shift | None = None
    attack: Attack | None = None
    threat: Threat | None = None  # an attack has one
    seed: int = 0
    limit: int = 0  # so many of an audit's images, balanced; 0 is all. No verdict depends on it

    @property
    def name(self) -> str:
        """The one spelling of it."""
        parts = [part.name for part in (self.shift, self.attack) if part is not None]
        return ">".join(parts) or "clean"

    @property
    def words(self) -> str:
        """Its name and what else an audit was asked for, as reports tell such apart."""
        if self.threat is None:
            return self.name
        return f"{self.name} eps={spell_eps(self.threat.widest)} norm={self.norm} seed={self.seed}"

    @property
    def kind(self) -> Kind:
        """What was done to the image."""
        if self.attack is not None:
            if self.attack.verdict == CERTIFIED:
                return "certificate" if self.shift is None else "shifted certificate"
            return "attack" if self.shift is None else "shifted attack"
        return "clean" if self.shift is None else "shift"

    @property
    def traits(self) -> Traits:
        """What its rows say beside its name: the attack's, and of which shift it starts."""
        shifted = None if self.shift is None else self.shift.traits
        if self.attack is None:
            return shifted or Traits("clean")
        own = self.attack.traits
        if self.shift is None:
            return own
        return replace(own, options=",".join(filter(None, [self.shift.name, own.options])))

    @property
    def verdict(self) -> str:
        """`last` or `any` iterate of its attack; there is one image where there is none."""
        return "last" if self.attack is None else self.attack.verdict

    @property
    def needs_gradient(self) -> bool:
        """Whether it can be run on a black box."""
        return self.attack is not None and self.attack.needs_gradient

    @property
    def by_batch(self) -> bool:
        """Whether its draws depend on the batch."""
        return self.attack is not None and self.attack.by_batch

    @property
    def norm(self) -> str:
        """The name of its threat's norm; of no consequence where nothing is threatened."""
        return "Linf" if self.threat is None else self.threat.ball.name

    @cached_property
    def key(self) -> str:
        """Sixteen hex digits over all that decides what becomes of an image.

        Found once: a radius for each of many images takes long to write out. Clean images depend on
        nothing else, so they are the same for every radius and seed.
        """
        facts: list[object] = [] if self.shift is None else [self.shift.name, self.shift.identity]
        if self.attack is not None:
            assert self.threat is not None
            stated = self.threat.stated
            radius = stated if isinstance(stated, list) else [stated]
            facts += [self.attack.identity, radius, self.norm, self.seed, self.verdict]
        elif self.shift is not None:
            facts.append(self.seed)
        return hashlib.blake2b(json.dumps(facts or ["clean"]).encode(), digest_size=8).hexdigest()

    def judge(self, subject: Subject, batch: Batch, tell: Tell = tell_nobody) -> Judged:
        """Give the verdict on every sample of one batch; it depends on nothing outside the batch.

        The subject must be in eval mode (`subject.asked()`); `tell` hears of each attack of a suite
        who still stands.
        """
        images, home = subject.take(batch.images), subject.device
        batch = Batch(images, batch.labels.to(home), batch.index.to(home))
        if self.shift is not None:
            moved = self.shift.images(batch, self.seed)
            batch = replace(moved, images=subject.take(moved.images))
        if self.attack is None:
            return _as_they_are(subject, batch, self.name)
        assert self.threat is not None
        return self.attack.judge(subject, batch, self.threat, self.seed, tell)


def _as_they_are(subject: Subject, batch: Batch, name: str) -> Judged:
    """What the model says without an attack."""
    logits = subject.ask(batch.images)
    predicted = logits.argmax(1)
    return Judged(
        predicted,
        -LogitGap(batch.labels)(logits),
        torch.zeros_like(batch.labels, dtype=torch.int32),
        torch.where(predicted == batch.labels, STANDING, 0),
        (name,),
        batch.images,
    )
