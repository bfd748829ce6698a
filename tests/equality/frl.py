"""FRL's released scripts: reweight, remargin and both."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from boundaries import rates
from torch import Tensor

from classwise.classes.counts import ClassCounts
from classwise.methods.xu2021_frl import ATTACKED, CLEAN
from equality.class_statistics import table
from equality.comparison import Comparison, Released, largest, over
from equality.equations import climb_from_clean, kl, surprise
from equality.laboratory import SIZES, Outcome, World, ours, settings_along, trained, world

CODE = Released("hannxu123/fair_robust", "a80547d")
BEFORE = Released("hannxu123/fair_robust", "8e6429a")  # the last to have the remargin script
EPS, STEP, RATE = 8 / 255, 2 / 255, 0.05


@dataclass(frozen=True)
class Script:
    """The constants of one script, and what it leaves out."""

    slack: float  # τ₁ = τ₂
    bound: float  # L
    beta: float
    margin_rate: float | None = None  # a₂
    widest: float = 1.0
    boundary: bool = True  # whether the boundary multiplier moves


SCRIPTS = {
    "both": Script(0.07, 0.5, 1.5, 0.2, 3.0),
    "reweight": Script(0.1, 0.5, 1.5),
    "remargin": Script(0.1, 0.3, 1.0, 0.1, 2.5, boundary=False),
}


def bounded(values: list[float], bound: float) -> list[float]:
    """Cut off at 0, then scaled down to a sum of `bound` where it is more."""
    cut = [max(value, 0.0) for value in values]
    return [bound * value / sum(cut) for value in cut] if sum(cut) > bound else cut


def cost_sensitive(multipliers: list[float]) -> list[float]:
    """1/K + (K−1)/K · own − 1/K · every other, by the script's two loops."""
    size, found = len(multipliers), []
    for i in range(size):
        weight = 1 / size
        for j in range(size):
            share = multipliers[j] / size
            weight += multipliers[j] - share if i == j else -share
        found.append(weight)
    return found


def multipliers(
    script: Script, seen: list[tuple[Tensor, Tensor]], rate: float = RATE, halve_every: int = 40
) -> Iterator[tuple[list[float], list[float], list[float]]]:
    """Weights of the clean and of the boundary term and ε_k / ε, for every epoch.

    `seen` are the clean and the attacked validation table at the beginning of each.
    """
    size = len(seen[0][0])
    nat, bnd, mar = [0.0] * size, [0.0] * size, [0.0] * size
    for number, (clean, attacked) in enumerate(seen, start=1):
        if number % halve_every == 0:
            rate /= 2
        (right, right_all), (robust, robust_all) = rates(clean), rates(attacked)
        for k in range(size):
            nat[k] += rate * ((1 - right[k]) - (1 - right_all) - script.slack)
            excess = (right[k] - robust[k]) - (right_all - robust_all) - script.slack
            bnd[k] += 2 * rate * excess if script.boundary else 0.0
            mar[k] += (script.margin_rate or 0.0) * excess
        nat, bnd = bounded(nat, script.bound), bounded(bnd, script.bound)
        factors = [1.0] * size
        if script.margin_rate is not None:
            factors = [min(max(math.exp(2 * value), 0.98), script.widest) for value in mar]
        yield cost_sensitive(nat), cost_sensitive(bnd), factors


def validation(num_classes: int, epoch: int) -> tuple[Tensor, Tensor]:
    """A clean table, and one in which the attack has cost some classes more than others."""
    clean = table(num_classes, seed=7 * epoch, size=80, spread=True)
    attacked = clean.clone()
    for k in range(num_classes):
        lost = int(clean[k, k]) * (4 * k + 1 + epoch % 3) // (4 * num_classes + 1)
        attacked[k, k] -= lost
        attacked[k, (k + 1) % num_classes] += lost
    return clean, attacked


def as_counts(seen: tuple[Tensor, Tensor]) -> dict:
    return {CLEAN: ClassCounts(seen[0]), ATTACKED: ClassCounts(seen[1])}


def policy_case(num_classes: int, variant: str) -> dict[str, float]:
    """Ninety boundaries: weights in the proportions that count, margins, the halved rate."""
    seen = [validation(num_classes, epoch) for epoch in range(90)]
    text = f"trades+frl(variant={variant}, start=0)"
    here = world(num_classes, eps=EPS, step=STEP)
    found = settings_along(text, here, [as_counts(pair) for pair in seen])
    pairs = []
    for settings, rows in zip(found, multipliers(SCRIPTS[variant], seen), strict=True):
        nat, bnd, factors = torch.tensor(rows, dtype=torch.float64)
        pairs.append((settings.label_weight / num_classes, nat))
        pairs.append((settings.robust_weight / num_classes, bnd))
        pairs.append((settings.margin, EPS * factors))
    return {"weights and margins over 90 boundaries": largest(pairs)}


def step(here: World, variant: str, rows: tuple[list[float], ...]) -> Outcome:
    """One batch: the clean batch is forwarded twice, as in TRADES."""
    model, script = here.fresh(), SCRIPTS[variant]
    nat, bnd, factors = rows
    eps = here.for_each([EPS * factor for factor in factors])
    size = float(eps.max()) / 4 if variant == "both" else STEP
    examples = climb_from_clean(model, here, eps, size)
    clean, robust, again = model(here.images), model(examples), model(here.images)
    labels = here.labels.tolist()
    natural = sum(nat[y] * surprise(clean[b], y) for b, y in enumerate(labels))
    boundary = sum(bnd[y] * kl(again[b], robust[b]) for b, y in enumerate(labels))
    nat_all, bnd_all = sum(nat[y] for y in labels), sum(bnd[y] for y in labels)
    if variant == "remargin":  # one denominator for both
        loss = (natural + script.beta * boundary) / (nat_all + bnd_all)
    else:
        loss = natural / nat_all + script.beta * boundary / bnd_all
    return trained(model, [here.images, examples], loss)


def step_case(num_classes: int, variant: str) -> dict[str, float]:
    """The step after five boundaries, every class in the batch."""
    here = replace(world(num_classes, eps=EPS, step=STEP), epoch=4)
    assert len(here.labels.unique()) == num_classes
    seen = [validation(num_classes, epoch) for epoch in range(5)]
    *_, rows = multipliers(SCRIPTS[variant], seen)
    text = f"trades+frl(variant={variant}, start=0)"
    return ours(text, here, [as_counts(pair) for pair in seen]).beside(step(here, variant, rows))


TWICE = "the code forwards the clean batch twice, also for the KL"
REMARKS = {
    "both": "where the class of the largest ε_k is in the batch, by which the code sets its step",
    "remargin": "a script that was deleted later",
}


def rows_of(variant: str) -> list[Comparison]:
    """The step and the policies of one script."""
    text = f"trades+frl(variant={variant}, start=0)"
    code = BEFORE if variant == "remargin" else CODE
    return [
        Comparison(
            f"FRL {variant}",
            text,
            code,
            lambda: over(step_case(size, variant) for size in SIZES),
            REMARKS.get(variant, ""),
            {"running statistics": TWICE},
        ),
        Comparison(
            f"FRL {variant}, class policies",
            text,
            code,
            lambda: over(policy_case(size, variant) for size in SIZES),
        ),
    ]


COMPARISONS = [row for variant in SCRIPTS for row in rows_of(variant)]
