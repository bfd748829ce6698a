"""Attacks in order on the samples still standing; a sample is robust if it survives them all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from classwise.attacks.condition import Traits
from classwise.attacks.judged import STANDING, Judged, Tell
from classwise.attacks.losses import LogitGap
from classwise.attacks.quick.patches import Patches
from classwise.attacks.search.engine import (
    Found,
    Scene,
    Search,
    only_asks,
    run_search,
    surely_wrong,
)
from classwise.attacks.search.state import Rows, take
from classwise.attacks.targets import likeliest_others
from classwise.attacks.threat import Threat
from classwise.models.asking import ask
from classwise.models.subject import Subject
from classwise.types import Batch, Images, Labels, LogitModel, PerSample

# Images in one pass on a processor, of a network that keeps little of them. With more, activations
# leave the cache and every image costs more. Between 64 and 128, which were timed with two small
# networks and images of 32×32 on two cores.
_SMALL = 96


@dataclass(frozen=True, slots=True)
class Suite:
    """One or more searches under one name, with the verdict `any`."""

    name: str
    traits: Traits
    searches: tuple[Search[Any], ...]
    verdict: str = "any"
    by_batch: bool = False

    @property
    def identity(self) -> str:
        """All its settings are in its name."""
        return self.name

    @property
    def needs_gradient(self) -> bool:
        """Whether some attack climbs; Square only asks."""
        return not all(only_asks(search) for search in self.searches)

    def judge(
        self, subject: Subject, batch: Batch, threat: Threat, seed: int, tell: Tell
    ) -> Judged:
        """Attack what stands with one search after the other."""
        progress = _Progress.of(subject, batch, threat)
        width = _working_width(subject, batch.images, int(progress.standing.sum()))
        twin = subject.quick(batch.images)
        patches = _patches(twin, batch.images)
        scene = Scene(twin, threat.ball, seed, subject.num_classes, width, patches)
        for number, search in enumerate(self.searches, start=1):
            rows = take(progress.rows, progress.standing)
            home, rows.place = rows.place, torch.arange(len(rows.labels), device=rows.place.device)
            found = run_search(scene, search, rows)
            width = subject.asked_at_once
            doubted = confirm(subject.logits, found, rows, width, ties=only_asks(search))
            if len(doubted):
                slowly = replace(scene, model=subject.logits, patches=None, careful=True)
                again = run_search(slowly, search, _alone(rows, doubted))
                _put(found, doubted, again)
            progress.enter(home, found, number)
            tell(search.name, progress.standing)
        return progress.judged(("clean", *(search.name for search in self.searches)))


@dataclass(slots=True)
class _Progress:
    """What has become of every sample of a batch so far."""

    rows: Rows
    predicted: Labels
    gap: PerSample
    fell_to: Tensor
    spent: Tensor
    images: Images

    @classmethod
    def of(cls, subject: Subject, batch: Batch, threat: Threat) -> _Progress:
        """Before any search: what is wrong on the clean image has fallen already."""
        width = _working_width(subject, batch.images, len(batch))
        clean = ask(subject.logits, batch.images, width, subject.num_classes)
        predicted = clean.argmax(1)
        rows = Rows(
            batch.images,
            batch.labels,
            batch.index,
            threat.like(batch.images, batch.index),
            likeliest_others(clean, batch.labels),
            torch.arange(len(batch), device=batch.labels.device),
            torch.zeros_like(batch.labels),
        )
        fell_to = torch.where(predicted == batch.labels, STANDING, 0)
        gap, none = -LogitGap(batch.labels)(clean), torch.zeros_like(fell_to, dtype=torch.int32)
        return cls(rows, predicted, gap, fell_to, none, batch.images.clone())

    @property
    def standing(self) -> Tensor:
        """Who has not fallen."""
        return self.fell_to == STANDING

    def enter(self, home: Labels, found: Found, number: int) -> None:
        """What a search did to the samples whose places are in `home`."""
        fallen = home[found.fallen]
        self.images[fallen] = found.images[found.fallen]
        self.predicted[fallen] = found.called[found.fallen]
        self.fell_to[fallen] = number
        self.spent[home] += found.spent
        lowest = torch.minimum(self.gap[home], found.gap)
        self.gap[home] = torch.where(found.fallen, found.gap, lowest)

    def judged(self, attacks: tuple[str, ...]) -> Judged:
        """The verdict."""
        return Judged(self.predicted, self.gap, self.spent, self.fell_to, attacks, self.images)


def _working_width(subject: Subject, images: Images, count: int) -> int:
    """How many of `count` images to attack at a time; no result depends on it."""
    if images.device.type != "cpu":
        return subject.width
    best = min(_SMALL, subject.at_once(images))
    # a third more at once costs less than a second helping of a few, where their layers have room
    more = best < count <= min(4 * best // 3, subject.asked_at_once)
    return min(subject.width, count if more else best)


def _patches(twin: LogitModel, images: Images) -> Patches | None:
    """What a processor gains by redoing little, a graphics card would lose to many small calls."""
    if isinstance(twin, GraphModule) and images.device.type == "cpu" and len(images):
        return Patches(twin, images)
    return None


def confirm(model: LogitModel, found: Found, rows: Rows, width: int, *, ties: bool) -> Labels:
    """Ask the model itself about what fell; a sample that is not surely wrong stands up again.

    The search may have asked a quicker twin, in float32 an answer may depend on the company in the
    batch, and some models draw random numbers. Returns who stood up: their search ended too soon.
    """
    down = found.fallen.nonzero().squeeze(1)
    logits = ask(model, found.images[down], width, rows.rivals.shape[1] + 1)
    found.called[down] = logits.argmax(1)
    found.gap[down] = -LogitGap(rows.labels[down])(logits).to(found.gap.dtype)
    unsure = ~surely_wrong(logits, rows.labels[down], ties)
    found.fallen[down[unsure]] = False
    return down[unsure]


def _alone(rows: Rows, few: Labels) -> Rows:
    """Some rows, numbered anew."""
    chosen = take(rows, torch.isin(rows.place, few))
    chosen.place = torch.arange(len(few), device=few.device)
    return chosen


def _put(found: Found, few: Labels, again: Found) -> None:
    """Enter what a second, careful search did to a few samples."""
    found.fallen[few], found.images[few] = again.fallen, again.images
    found.called[few], found.gap[few] = again.called, torch.minimum(found.gap[few], again.gap)
    found.spent[few] += again.spent
