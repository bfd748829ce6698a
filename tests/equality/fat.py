"""FAT's released code: its own early stop, on AT, TRADES and MART."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from equality import mart
from equality.comparison import Comparison, Released, over
from equality.equations import total_kl, total_surprise
from equality.laboratory import SIZES, Outcome, World, ours, trained, world

CODE = Released("zjfheart/Friendly-Adversarial-Training", "80a0640")
EPS, STEP, NOISE, STEPS = 0.031, 0.007, 0.001, 10


@dataclass(frozen=True)
class Emitted:
    """Attacked images in the order in which their samples stopped, and whose they are."""

    images: Tensor
    samples: list[int]

    def in_batch_order(self) -> Tensor:
        return torch.stack([self.images[self.samples.index(b)] for b in range(len(self.samples))])


def friendly(
    model: nn.Module,
    here: World,
    begin: Tensor,
    height: Callable[[Tensor, list[int]], Tensor],
    patience: int,
    noise: float = 0.0,
) -> Emitted:
    """Attack with running statistics; a wrong sample without lives left is emitted as it is."""
    model.eval()
    lives = [patience] * len(here.labels)
    going, now = list(range(len(here.labels))), begin
    done: list[Tensor] = []
    order: list[int] = []
    for number in range(STEPS):
        now = now.detach().requires_grad_(True)
        logits = model(now)
        (slope,) = torch.autograd.grad(height(logits, going), now)
        now, staying = now.detach(), []
        for place, sample in enumerate(going):
            if int(logits[place].argmax()) == int(here.labels[sample]):
                staying.append(place)
            elif lives[sample] > 0:
                lives[sample] -= 1
                staying.append(place)
            else:
                done.append(now[place])
                order.append(sample)
        going = [going[place] for place in staying]
        if not going:
            break
        near, jitter = here.images[going], here.normal(f"jitter {number}")[going]
        now = now[staying] + STEP * slope[staying].sign() + noise * jitter
        now = torch.min(torch.max(now, near - EPS), near + EPS).clamp(0.0, 1.0)
    if going:
        done += list(now.detach())
        order += going
    model.train()
    return Emitted(torch.stack(done), order)


def at_step(here: World, patience: int) -> tuple[Outcome, Emitted]:
    model = here.fresh()
    begin = (here.images + (2 * here.uniform() - 1) * EPS).clamp(0.0, 1.0)

    def height(logits: Tensor, going: list[int]) -> Tensor:
        return total_surprise(logits, here.labels[going])

    found = friendly(model, here, begin, height, patience, NOISE)
    loss = total_surprise(model(found.images), here.labels[found.samples]) / len(here.labels)
    return trained(model, [found.in_batch_order()], loss), found


def near_start(here: World) -> Tensor:
    """0.001·N around the image, clipped, as this code has it for TRADES and MART."""
    return (here.images + 0.001 * here.normal()).clamp(0.0, 1.0)


def trades_step(here: World, patience: int) -> Outcome:
    model, count = here.fresh(), len(here.labels)
    with torch.no_grad():
        clean = model.eval()(here.images)

    def height(logits: Tensor, going: list[int]) -> Tensor:
        return total_kl(clean[going], logits)

    found = friendly(model, here, near_start(here), height, patience)
    natural, robust = model(here.images[found.samples]), model(found.images)
    loss = total_surprise(natural, here.labels[found.samples]) / count
    loss = loss + 6.0 * total_kl(natural, robust) / count
    return trained(model, [here.images, found.in_batch_order()], loss)


def mart_step(here: World, patience: int) -> Outcome:
    model = here.fresh()

    def height(logits: Tensor, going: list[int]) -> Tensor:
        return total_surprise(logits, here.labels[going])

    found = friendly(model, here, near_start(here), height, patience)
    robust, natural = model(found.images), model(here.images[found.samples])
    loss = mart.loss_of(natural, robust, here.labels[found.samples], beta=6.0)
    return trained(model, [here.images, found.in_batch_order()], loss)


def case(num_classes: int, recipe: str, step: Callable[[World, int], Outcome], patience: int):
    here = world(num_classes, eps=EPS, step=STEP)
    return ours(recipe, here).beside(step(here, patience))


def row(method: str, base: str, step: Callable[[World, int], Outcome], highest: int, **facts):
    """Every patience of the base's schedule, from 0 up."""
    recipe = f"{base}+fat(rule=original, patience=τ)"

    def measure():
        return over(
            case(size, recipe.replace("τ", str(tau)), step, tau)
            for size in SIZES
            for tau in range(highest + 1)
        )

    return Comparison(f"{method}, τ from 0 to {highest}", recipe, CODE, measure, **facts)


def on_at(here: World, patience: int) -> Outcome:
    return at_step(here, patience)[0]


ORDER = {"running statistics": "the code forwards the attacked batch before the clean one"}
ON_MART = {"apart": ORDER, "remark": mart.REMARK, "bound": 1e-10}

COMPARISONS = [
    row("FAT on AT", f"at(step={STEP}, batchnorm=eval)", on_at, 3),
    row("FAT on TRADES", f"trades(step={STEP})", trades_step, 3),
    row("FAT on MART", f"mart(step={STEP}, beta=6)", mart_step, 4, **ON_MART),
]
