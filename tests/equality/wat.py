"""WAT's released code."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from classwise.attacks.ball import LINF
from classwise.attacks.inner import Moment
from classwise.attacks.threat import Threat
from classwise.classes.settings import ClassSettings
from classwise.data.batches import Batches
from classwise.methods.li2023_wat import VALID
from classwise.recipe_text import parse_recipe
from classwise.training.validate import Checker
from equality.comparison import Comparison, Released, largest, over
from equality.equations import climb_from_clean, kl, surprise, total_kl, total_surprise
from equality.laboratory import (
    EPOCHS,
    SEED,
    SIZES,
    Outcome,
    World,
    float64,
    ours,
    settings_along,
    trained,
    world,
)

CODE = Released("boqili/WAT", "62d1184")
EPS, STEP, BETA, RATE = 0.031, 0.007, 6.0, 0.1
RECIPE = f"trades(step={STEP})+wat"
BATCH = 8  # of validation; the number of images is a multiple of it
DIVISOR = (
    "with whole validation batches of equal classes; else the code divides by batches × batch "
    "size, we by the number of images"
)


def validation_world(num_classes: int) -> World:
    """As many images of every class, in whole batches."""
    here = world(num_classes, count=4 * num_classes, eps=EPS, step=STEP, seed=9)
    return replace(here, labels=torch.arange(num_classes).repeat(4))


def costs(valid: World) -> list[float]:
    """Costs of the K classes and of their average after one epoch, batch by batch."""
    size = valid.num_classes
    nat, bnd = [0.0] * (size + 1), [0.0] * (size + 1)
    model = valid.fresh()
    batches = len(valid.labels) // BATCH
    for number in range(batches):
        rows = slice(number * BATCH, (number + 1) * BATCH)
        images, labels = valid.images[rows], valid.labels[rows].tolist()
        noise = valid.normal()[rows]
        model.eval()
        clean = model(images).detach()
        attacked = attack(model, images, clean, noise)
        robust = model(attacked).detach()
        for b, label in enumerate(labels):
            one, other = surprise(clean[b], label).item(), kl(clean[b], robust[b]).item()
            nat[label] += one
            bnd[label] += other
            nat[size] += one / size
            bnd[size] += other / size
    scale = size / (batches * BATCH)
    return [scale * a + BETA * scale * b for a, b in zip(nat, bnd, strict=True)]


def attack(model, images, clean, noise):
    now = images + 0.001 * noise
    for _ in range(10):
        now = now.detach().requires_grad_(True)
        (slope,) = torch.autograd.grad(total_kl(clean, model(now)), now)
        now = now.detach() + STEP * slope.sign()
        now = torch.min(torch.max(now, images - EPS), images + EPS).clamp(0.0, 1.0)
    return now


def experts(cost: list[float], rate: float = RATE) -> list[float]:
    """K + 1 weights that add up to K."""
    mass = [math.exp(rate * c) for c in cost]
    return [(len(cost) - 1) * m / sum(mass) for m in mass]


def looked_at(valid: World) -> dict:
    """Our own validation of the network, as the trainer does it."""
    with float64():
        slots = parse_recipe(RECIPE).slots
        base = ClassSettings.uniform(valid.num_classes, margin=EPS, step=STEP, beta=BETA)
        batches = Batches(valid.images, valid.labels, valid.index, BATCH)
        checker = Checker(
            {"valid": batches}, valid.num_classes, Threat(LINF, EPS), SEED, slots, base
        )
        return checker.look(valid.fresh(), frozenset({VALID}), Moment(SEED, valid.epoch, EPOCHS))


def boundaries_of(num_classes: int) -> list[World]:
    """Four epochs' ends, each with another network and other noise."""
    found = []
    for epoch in range(1, 5):
        valid = replace(validation_world(num_classes), epoch=epoch)
        with torch.no_grad():
            for weight in valid.network.parameters():
                weight *= 1 + 0.3 * epoch
        found.append(valid)
    return found


def policy_case(num_classes: int) -> dict[str, float]:
    ends = boundaries_of(num_classes)
    found = settings_along(RECIPE, ends[0], [{}, *map(looked_at, ends)])
    cost, weights = [0.0] * (num_classes + 1), [1.0] * (num_classes + 1)
    pairs = []
    for settings, end in zip(found, [None, *ends], strict=True):
        if end is not None:
            cost = [a + b for a, b in zip(cost, costs(end), strict=True)]
            weights = experts(cost)
        each = [weights[k] + weights[num_classes] for k in range(num_classes)]
        expected = torch.tensor(each, dtype=torch.float64)
        pairs += [(settings.label_weight, expected), (settings.robust_weight, expected)]
    return {"weights over 4 boundaries": largest(pairs)}


def step(here: World, weights: list[float]) -> Outcome:
    """Class-wise sums with their weights, and the average loss with the last one's."""
    model, count = here.fresh(), len(here.labels)
    examples = climb_from_clean(model, here, EPS, STEP)
    clean, robust = model(here.images), model(examples)
    loss = torch.zeros((), dtype=torch.float64)
    for k in range(here.num_classes):
        for b, label in enumerate(here.labels.tolist()):
            if label == k:
                part = surprise(clean[b], k) + BETA * kl(clean[b], robust[b])
                loss = loss + weights[k] * part / count
    average = (total_surprise(clean, here.labels) + BETA * total_kl(clean, robust)) / count
    loss = loss + weights[here.num_classes] * average
    return trained(model, [here.images, examples], loss)


def step_case(num_classes: int) -> dict[str, float]:
    """The first epoch, whose weights are all 1, and the one after the first boundary."""
    here = world(num_classes, eps=EPS, step=STEP)
    first = ours(RECIPE, here).beside(step(here, [1.0] * (num_classes + 1)))
    end = boundaries_of(num_classes)[0]
    later = replace(here, epoch=1)
    second = ours(RECIPE, later, [{}, looked_at(end)]).beside(step(later, experts(costs(end))))
    return over([first, second])


COMPARISONS = [
    Comparison("WAT", RECIPE, CODE, lambda: over(map(step_case, SIZES))),
    Comparison("WAT, class policies", RECIPE, CODE, lambda: over(map(policy_case, SIZES)), DIVISOR),
]
