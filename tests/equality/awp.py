"""AWP's released code, on AT and on TRADES."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from equality import cfa
from equality.comparison import Comparison, Released, over
from equality.equations import climb_from_clean, total_kl, total_surprise
from equality.laboratory import DECAY, RATE, SIZES, Outcome, World, ours, outcome_of, world

CODE = Released("csdongxian/AWP", "a7acf5d")
BETA, PROXY_RATE = 6.0, 0.01
DECAYED = "the code steps from the perturbed weights, so that weight decay acts on those"
MORE = "the code forwards more batches in train mode"


def perturbations(model: nn.Module, loss_of: Callable[[nn.Module], Tensor]) -> dict[str, Tensor]:
    """Where one step of a proxy copy up the loss leads, as long as the weights, layer by layer."""
    proxy = copy.deepcopy(model).train()
    loss_of(proxy).backward()
    found = {}
    for (name, old), new in zip(model.named_parameters(), proxy.parameters(), strict=True):
        if old.dim() <= 1 or "weight" not in name:
            continue
        moved = (new.detach() + PROXY_RATE * new.grad) - old.detach()
        length = sum(value**2 for value in moved.flatten().tolist()) ** 0.5
        height = sum(value**2 for value in old.detach().flatten().tolist()) ** 0.5
        found[name] = height / (length + 1e-20) * moved
    return found


def shift(model: nn.Module, by: dict[str, Tensor], factor: float) -> None:
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name in by:
                weight += factor * by[name]


def step(
    model: nn.Module, size: float, loss_of: Callable[[nn.Module], Tensor], examples: list[Tensor]
) -> Outcome:
    """Perturb, gradient, SGD step from there, and the perturbation taken off again."""
    ascent = perturbations(model, loss_of)
    shift(model, ascent, size)
    loss = loss_of(model)
    for weight in model.parameters():
        weight.grad = None
    loss.backward()
    with torch.no_grad():
        for weight in model.parameters():
            weight -= RATE * (weight.grad + DECAY * weight)
    shift(model, ascent, -size)
    return outcome_of(model, examples, loss.item())


def at_step(here: World) -> Outcome:
    model, count = here.fresh(), len(here.labels)
    delta = cfa.attacked(model, here, [here.eps] * here.num_classes)
    with torch.no_grad():
        model(here.images + delta)  # to compare restarts
    examples = (here.images + delta).clamp(0.0, 1.0)
    found = step(
        model, 0.01, lambda net: total_surprise(net(examples), here.labels) / count, [examples]
    )
    with torch.no_grad():
        model(here.images)  # for the log
    return found


def trades_step(here: World) -> Outcome:
    model, count = here.fresh(), len(here.labels)
    examples = climb_from_clean(model, here, here.eps, here.step)

    def loss_of(net: nn.Module) -> Tensor:
        robust, again, clean = net(examples), net(here.images), net(here.images)
        boundary = total_kl(again, robust) / count
        return total_surprise(clean, here.labels) / count + BETA * boundary

    return step(model, 0.005, loss_of, [here.images, examples])


def case(num_classes: int, recipe: str, theirs: Callable[[World], Outcome]) -> dict[str, float]:
    here = world(num_classes)
    return ours(recipe, here).beside(theirs(here))


def row(method: str, recipe: str, theirs: Callable[[World], Outcome]) -> Comparison:
    def measure():
        return over(case(size, recipe, theirs) for size in SIZES)

    apart = {"weights": DECAYED, "running statistics": MORE}
    return Comparison(method, recipe, CODE, measure, apart=apart)


COMPARISONS = [
    row("AWP on AT", "at+awp", at_step),
    row("AWP on TRADES", "trades+awp(start=0)", trades_step),
]
