"""One row per condition, and one per door. A row here subscribes it to every law for its kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import classwise
from classwise.attacks.condition import Condition
from classwise.attacks.inner import Moment
from classwise.attacks.names import parse_conditions
from classwise.attacks.threat import Threat
from classwise.auditing.plan import Plan
from classwise.auditing.run import run_audit
from classwise.data.view import View
from classwise.models.subject import Subject
from classwise.recipe_text import parse_recipe
from classwise.record.rows import Predictions
from classwise.training.validate import OwnAttack

EPS = {"Linf": 0.04, "L2": 0.3}  # under which about half of the samples fall
COUNT, SIDE = 24, 6


class Prototypes(nn.Module):
    """Convolution, BatchNorm and a head that knows one image of each class: nothing is trained."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(7)
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * SIDE * SIDE, num_classes)
        with torch.no_grad():
            for weight in (self.conv.weight, self.conv.bias, self.norm.running_mean):
                weight.copy_(0.5 * torch.randn(weight.shape, generator=rng))
            self.norm.running_var.copy_(0.5 + torch.rand(4, generator=rng))
            seen = self.eval().features(prototypes(num_classes))
            self.head.weight.copy_(2 * seen)
            self.head.bias.copy_(-seen.square().sum(1))
        self.double()

    def features(self, images: Tensor) -> Tensor:
        return torch.tanh(self.norm(self.conv(images))).flatten(1)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


def prototypes(num_classes: int) -> Tensor:
    """An image for each class."""
    rng = torch.Generator().manual_seed(3)
    return 0.2 + 0.6 * torch.rand(num_classes, 1, SIDE, SIDE, generator=rng)


class Blur:
    """An image transform of a user's own."""

    def __init__(self, share: float = 0.5) -> None:
        self.share = share

    def __call__(self, images: Tensor) -> Tensor:
        soft = F.avg_pool2d(images, 3, 1, padding=1, count_include_pad=False)
        return torch.lerp(images, soft, self.share)


class Grain:
    """One that draws, by the images' numbers."""

    def __init__(self, size: float = 0.1) -> None:
        self.size = size

    def __call__(self, images: Tensor, index: Tensor, seed: int) -> Tensor:
        kinds = [torch.Generator().manual_seed(1000 * seed + int(one)) for one in index]
        noise = torch.stack([torch.rand(images.shape[1:], generator=kind) for kind in kinds])
        return (images + self.size * (noise.to(images) - 0.5)).clamp(0, 1)


class Nudge:
    """Somebody else's attack: random signs from the global generator, the best of a few."""

    def __init__(self, model: nn.Module, eps: float, tries: int = 3) -> None:
        self.model, self.eps, self.tries = model, eps, tries

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        best, height = images, torch.full_like(labels, -torch.inf, dtype=images.dtype)
        for _ in range(self.tries):
            step = torch.randn_like(images)
            step = step / step.flatten(1).norm(dim=1).view(-1, 1, 1, 1)  # inside either ball
            moved = (images + 0.99 * self.eps * step).clamp(0, 1)
            loss = F.cross_entropy(self.model(moved), labels, reduction="none")
            best = torch.where((loss > height).view(-1, 1, 1, 1), moved, best)
            height = torch.maximum(height, loss.detach())
        return best


@dataclass(frozen=True, eq=False)
class Scene:
    """Whom a condition meets: a model, images and a threat."""

    num_classes: int = 4
    norm: str = "Linf"
    dtype: torch.dtype = torch.float64

    @property
    def eps(self) -> float:
        return EPS[self.norm]

    @property
    def model(self) -> Prototypes:
        """Always the same object, so that attacks made for it fit."""
        return _network(self.num_classes, self.dtype)

    @property
    def labels(self) -> Tensor:
        labels = 7 * torch.arange(COUNT) % self.num_classes
        return torch.where(torch.arange(COUNT) == 5, (labels + 1) % self.num_classes, labels)

    @property
    def pixels(self) -> Tensor:
        """As files keep them; one sample has a wrong label, so that clean images fall, too."""
        rng = torch.Generator().manual_seed(11)
        own = prototypes(self.num_classes)[7 * torch.arange(COUNT) % self.num_classes]
        other = prototypes(self.num_classes)[(7 * torch.arange(COUNT) + 1) % self.num_classes]
        way = torch.linspace(0.05, 0.48, COUNT)[torch.randperm(COUNT, generator=rng)]
        moved = torch.lerp(own, other, way.view(-1, 1, 1, 1))
        return (255 * moved).round().to(torch.uint8)

    @property
    def images(self) -> Tensor:
        return self.pixels.float() / 255

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(f"c{k}" for k in range(self.num_classes))

    @property
    def data(self) -> View:
        return View.given(self.pixels, self.labels, self.num_classes, self.class_names)

    def subject(self, width: int = 256) -> Subject:
        return Subject(self.model, self.num_classes, width)

    def threat(self) -> Threat:
        return Threat.of(self.eps, self.norm)

    def condition(self, row: Row, seed: int = 0) -> Condition:
        return parse_conditions([row.given(self)], self.threat(), seed)[0]

    def plan(self, *rows: Row, width: int = 256) -> Plan:
        conditions = tuple(self.condition(row) for row in rows)
        return Plan(self.subject(width), self.data, conditions)

    def found(self, row: Row, width: int = 256) -> Predictions:
        return run_audit(self.plan(row, width=width))[0]


@cache
def _network(num_classes: int, dtype: torch.dtype) -> Prototypes:
    with torch.random.fork_rng(devices=[]):  # torch draws weights before they are set
        return Prototypes(num_classes).to(dtype)


@dataclass(frozen=True)
class Row:
    """One condition and what is to be expected of it."""

    name: str
    known: str = ""  # the entry of KNOWN_ATTACKS that it stands for
    make: Callable[[Scene], Any] | None = None  # what stands in a list of attacks; None: the name
    by_batch: bool = False  # its draws depend on the batch: batch size and order may matter
    black_box: bool = False  # runs without gradients
    kept: bool = True  # a ledger may hold it
    readable: bool = True  # its name, read back, is the same condition
    own_eps: bool = False  # states its radius, whatever the audit's
    threatens: bool = True  # has a radius and a norm
    seeded: bool = True  # the seed belongs to its identity
    only_l2: bool = False  # refused under other norms

    def scene(self, norm: str = "Linf", **facts: Any) -> Scene:
        """One that it can meet, under this norm if it may be."""
        return Scene(norm="L2" if self.only_l2 else norm, **facts)

    def given(self, scene: Scene) -> Any:
        return self.name if self.make is None else self.make(scene)

    def __str__(self) -> str:
        return self.name


def own_attack(scene: Scene) -> Condition:
    """The attack of a recipe, as training hands it in to look at held-out images."""
    slots = parse_recipe("trades(steps=2)").slots
    base = slots.alike(scene.num_classes, scene.eps)
    return Condition(None, OwnAttack(slots, base, Moment(0, 1, 3), None), scene.threat(), 0)


_SHIFT = {"black_box": True, "threatens": False}

CONDITIONS = [
    Row("clean", "clean", black_box=True, threatens=False, seeded=False),
    Row("fgsm", "fgsm"),
    Row("fgsm(eps=0.03)", own_eps=True),
    Row("pgd-3", "pgd-K"),
    Row("pgd-3(eps=0.03)", own_eps=True),
    Row("pgd-3(step=eps/2,start=none)"),
    Row("pgd-3(restarts=3)"),
    Row("pgd-3(target=likely)"),
    Row("pgd-3(target=unlikely)"),
    Row("pgd-3(target=random)"),
    Row("pgd-3(target=1)"),
    Row("pgd-3(verdict=any)"),
    Row("pgd-3(restarts=3,verdict=any)"),
    Row("pgd-3(logits=all)"),
    Row("pgd-3(labels=predicted)"),
    Row("pgd-3(logits=all,labels=predicted)"),
    Row("cw-3", "cw-K"),
    Row("cw-3(restarts=2,verdict=any)"),
    Row("apgd-ce(steps=4)", "apgd-ce"),
    Row("apgd-ce(steps=3,restarts=2,eot=2)"),
    Row("apgd-dlr(steps=4)", "apgd-dlr"),
    Row("apgd-t(steps=3,targets=3)", "apgd-t"),
    Row("fab-t(steps=3,targets=2)", "fab-t"),
    Row("square(queries=8)", "square", black_box=True),
    Row("deepfool(steps=3)", "deepfool"),
    # the standard suites take their number of steps from nobody; these are the same in small
    Row("suite(apgd-ce(steps=2),apgd-t(steps=2),fab-t(steps=2),square(queries=5))", "autoattack"),
    Row("suite(apgd-ce(steps=2,eot=2),apgd-dlr(steps=2,eot=2))", "autoattack-rand"),
    Row("suite(pgd-2,cw-2,square(queries=5),eps=0.03)", "suite(A,B,…)", own_eps=True),
    Row("suite(square(queries=3),apgd-ce(steps=2))"),
    Row("smoothing(sigma=0.3,n=150,n0=20)", "smoothing", black_box=True, only_l2=True),
    Row("smoothing(eps=0.1,sigma=0.1,n=90,alpha=0.01)", black_box=True, only_l2=True, own_eps=True),
    Row("smoothed-pgd-3(sigma=0.05,n=60,m=4)", "smoothed-pgd-K", only_l2=True),
    Row("smoothed-pgd-2(eps=0.2,sigma=0.05,n=40,m=3,step=eps/2)", only_l2=True, own_eps=True),
    Row(
        "conditions:Blur(share=0.2)>smoothing(eps=0.1,sigma=0.1,n=90,n0=20)",
        black_box=True,
        only_l2=True,
        own_eps=True,
    ),
    Row("conditions:Blur(share=0.6)", "module:Transform", **_SHIFT),
    Row("conditions:Grain", **_SHIFT),
    Row("conditions:Blur>pgd-3"),
    Row("conditions:Grain(size=0.05)>suite(apgd-ce(steps=2),square(queries=4))"),
    Row("corruption:gaussian_blur-3", "corruption:NAME-S", **_SHIFT),
    Row("corruption:impulse_noise-5", **_SHIFT),
    Row("corruption:shot_noise-4", **_SHIFT),
    Row("corruption:jpeg_compression-5", **_SHIFT),
    Row("corruption:contrast-2>pgd-3"),
    Row("corruption:spatter-1>suite(apgd-ce(steps=2),square(queries=4))"),
    Row("a transform as an object", make=lambda _: Blur(0.25), **_SHIFT),
    Row(
        "an attack object of ours",
        make=lambda s: classwise.PGD(s.model, s.eps, s.eps / 4, 2, norm=s.norm),
        own_eps=True,
    ),
    Row(
        "somebody else's attack",
        make=lambda s: Nudge(s.model, s.eps),
        by_batch=True,
        readable=False,
    ),
    Row("the recipe's own attack", make=own_attack, kept=False, readable=False, own_eps=True),
]


def same_verdicts(left: Predictions, right: Predictions, rounding: float = 1e-7) -> None:
    """Sample by sample, all that a row says; gaps but for rounding."""
    assert left.condition == right.condition
    for name in ("sample", "label", "predicted", "iterations", "broken_by", "radius"):
        assert np.array_equal(getattr(left, name), getattr(right, name)), name
    assert np.allclose(left.logit_gap, right.logit_gap, rtol=max(1e-5, rounding), atol=rounding)
