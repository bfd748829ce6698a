"""Attacks in order on the samples still standing; a sample is robust if it survives them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from classwise.attacks.ball import Ball
from classwise.attacks.losses import LogitGap
from classwise.attacks.patches import Patches
from classwise.attacks.search import (
    Found,
    Rows,
    Scene,
    Search,
    only_asks,
    run_search,
    surely_wrong,
    take,
)
from classwise.attacks.twin import quick_twin
from classwise.errors import ClasswiseError
from classwise.types import Batch, Images, Labels, LogitModel, Logits, PerSample

STANDING = -1  # in `Judged.fell_to`
# Pixels in one pass on a processor: 96 images of 32×32. With more, activations leave the cache and
# every image costs more. Between 64 and 128, which were timed with two small networks on two cores.
_PIXELS = 96 * 32 * 32


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on every sample of a batch, in batch order.

    `predicted` equals the label if and only if the sample stands; a fallen one has the class that
    the model, asked once more, gives to its adversarial image.
    """

    predicted: Labels
    logit_gap: PerSample  # true logit minus best other: at the verdict, or the smallest met
    iterations: Tensor  # evaluations spent
    fell_to: Tensor  # number of the attack in `attacks`; STANDING where none broke it
    attacks: tuple[str, ...]  # `clean` is an attack here: it breaks what was wrong all along
    images: Images  # where the verdict was found


@dataclass(frozen=True, slots=True)
class Suite:
    """One or more searches under one name, with the verdict `any`."""

    name: str
    searches: tuple[Search[Any], ...]
    eps: float | None = None  # its own radius; None takes what it is given
    verdict: str = "any"

    @property
    def needs_gradient(self) -> bool:
        """Whether some attack climbs; Square only asks."""
        return not all(only_asks(search) for search in self.searches)

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
        """Attack a batch, `width` samples at a time; `after` hears of each attack who stands."""
        twin = quick_twin(model, batch.images[:4])
        clean = ask(
            model, batch.images, _working_width(batch.images, width, len(batch)), num_classes
        )
        predicted, gap = clean.argmax(1), -LogitGap(batch.labels)(clean)
        standing = predicted == batch.labels
        room = _working_width(batch.images, width, int(standing.sum()))
        scene = Scene(twin, ball, seed, num_classes, room, _patches(twin, batch.images))
        fell_to = torch.where(standing, STANDING, 0)
        spent = torch.zeros_like(fell_to, dtype=torch.int32)
        images = batch.images.clone()
        everything = Rows(
            batch.images,
            batch.labels,
            batch.index,
            radius,
            likeliest_others(clean, batch.labels),
            torch.arange(len(batch), device=batch.labels.device),
            torch.zeros_like(batch.labels),
        )
        for number, search in enumerate(self.searches, start=1):
            rows = take(everything, standing)
            home, rows.place = rows.place, torch.arange(len(rows.labels), device=standing.device)
            found = run_search(scene, search, rows)
            doubted = confirm(model, found, rows, width, ties=only_asks(search))
            if len(doubted):
                slowly = replace(scene, model=model, patches=None, careful=True)
                again = run_search(slowly, search, _alone(rows, doubted))
                _put(found, doubted, again)
            fallen = home[found.fallen]
            images[fallen] = found.images[found.fallen]
            predicted[fallen] = found.called[found.fallen]
            fell_to[fallen] = number
            standing[fallen] = False
            spent[home] += found.spent
            lowest = torch.minimum(gap[home], found.gap)
            gap[home] = torch.where(found.fallen, found.gap, lowest)
            if after is not None:
                after(search.name, standing)
        names = ("clean", *(search.name for search in self.searches))
        return Judged(predicted, gap, spent, fell_to, names, images)

    def perturb(
        self, model: LogitModel, batch: Batch, *, eps: float | PerSample, ball: Ball, seed: int
    ) -> Images:
        """Adversarial images where they were found, and the images themselves elsewhere."""
        count = ask(model, batch.images[:1], 1).shape[1]
        radius = per_sample(eps, batch)
        facts: dict[str, Any] = {"num_classes": count, "radius": radius, "ball": ball}
        return self.judge(model, batch, **facts, seed=seed, width=len(batch)).images


def per_sample(eps: float | PerSample, batch: Batch) -> PerSample:
    """One radius for each image, in their precision and on their device."""
    images = batch.images
    return torch.as_tensor(eps, dtype=images.dtype, device=images.device).expand(len(batch))


def _working_width(images: Images, width: int, count: int) -> int:
    """How many of `count` images to attack at a time; no result depends on it."""
    if images.device.type != "cpu":
        return width
    best = max(8, _PIXELS // (images.shape[2] * images.shape[3]))
    # a third more at once costs less than a second helping of a few
    return min(width, count if best < count <= 4 * best // 3 else best)


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


def likeliest_others(logits: Logits, labels: Labels) -> Labels:
    """All classes but the true one, the likeliest first.

    >>> likeliest_others(torch.tensor([[1.0, 5.0, 3.0]]), torch.tensor([1])).tolist()
    [[2, 0]]
    """
    others = logits.scatter(1, labels[:, None], float("-inf"))
    return others.argsort(dim=1, descending=True, stable=True)[:, :-1]


def ask(model: LogitModel, images: Images, width: int, num_classes: int | None = None) -> Logits:
    """Logits of many images, `width` at a time, checked for shape and for NaN."""
    parts = [images.new_empty(0, num_classes)] if num_classes else []
    for part in torch.split(images, width) if len(images) else ():
        with torch.no_grad():
            logits = model(part)
        check_logits(logits, len(part), num_classes)
        parts.append(logits)
    return torch.cat(parts)


def check_logits(logits: Any, count: int, num_classes: int | None) -> None:
    """Refuse outputs that are not finite logits of `num_classes` classes."""
    shape = tuple(logits.shape) if isinstance(logits, Tensor) else ()
    if len(shape) != 2 or shape[0] != count or shape[1] != (num_classes or shape[1]):
        got = shape if isinstance(logits, Tensor) else type(logits).__name__
        wanted = f"({count}, {num_classes})" if num_classes else f"({count}, K)"
        raise ClasswiseError(
            f"the model gave {got} for {count} images, but there are {num_classes} classes; "
            f"it must return logits of shape {wanted}"
        )
    if not bool(torch.isfinite(logits).all()):
        raise ClasswiseError("the model's logits contain NaN or infinity; check its weights")
