"""DAFA's released code, on TRADES and on AT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from classwise.classes.counts import ClassCounts
from classwise.classes.settings import TRAIN_ROBUST
from equality.comparison import Comparison, Released, largest, over
from equality.equations import chances, climb_from_clean, surprise, total_kl, total_surprise
from equality.laboratory import (
    QUANTITIES,
    SIZES,
    Outcome,
    World,
    ours,
    settings_along,
    trained,
    world,
)

CODE = Released("rucy74/DAFA", "c60ba83")
EPS, STEP, BETA = 0.031, 0.007, 6.0
ORDER = "the code forwards the attacked batch before the clean one"


def class_weights(similarity: list[list[float]], strength: float) -> list[float]:
    """W by the code's loops over all pairs of classes; S_ij is the mean chance of j in class i."""
    size, found = len(similarity), []
    for i in range(size):
        weight = 1.0
        for j in range(size):
            if i == j:
                continue
            if similarity[i][i] < similarity[j][j]:
                weight += strength * similarity[i][j] * similarity[j][j]
            else:
                weight -= strength * similarity[j][i] * similarity[i][i]
        found.append(weight)
    return found


def remembered(logits: Tensor, labels: Tensor, num_classes: int) -> list[list[float]]:
    """S from the predictions that an epoch remembers, one sample at a time."""
    sums = torch.zeros(num_classes, num_classes, dtype=torch.float64)
    sizes = [0] * num_classes
    for row, label in zip(logits, labels.tolist(), strict=True):
        sums[label] += chances(row)
        sizes[label] += 1
    return [[sums[i, j].item() / sizes[i] for j in range(num_classes)] for i in range(num_classes)]


def epoch_of_logits(num_classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Predictions of an epoch; classes of unequal sizes, and some easier than others."""
    rng = torch.Generator().manual_seed(seed)
    sizes = torch.randint(3, 12, (num_classes,), generator=rng)
    labels = torch.repeat_interleave(torch.arange(num_classes), sizes)
    logits = 2 * torch.randn(len(labels), num_classes, generator=rng, dtype=torch.float64)
    ease = 3 * torch.rand(num_classes, generator=rng, dtype=torch.float64)
    logits[torch.arange(len(labels)), labels] += ease[labels]
    return logits, labels


def as_counts(logits: Tensor, labels: Tensor) -> dict:
    return {TRAIN_ROBUST: ClassCounts.of_logits(labels, logits, frozenset({"probability"}))}


def policy_case(num_classes: int, strength: float) -> dict[str, float]:
    """All 110 epochs: statistics of epoch 70 alone, applied from epoch 71 on."""
    here = world(4)
    here = replace(here, num_classes=num_classes, eps=EPS, step=STEP)
    seen = [epoch_of_logits(num_classes, seed=epoch) for epoch in range(1, 111)]
    boundaries = [{}, *(as_counts(*pair) for pair in seen)]
    text = f"trades(step={STEP})+dafa(strength={strength})"
    sizes = torch.ones(num_classes)
    found = settings_along(text, here, boundaries[:-1], epochs=110, sizes=sizes)
    pairs, weights = [], torch.ones(num_classes, dtype=torch.float64)
    for epoch, settings in enumerate(found, start=1):  # the settings that this epoch trains with
        pairs.append((settings.label_weight, weights))
        pairs.append((settings.margin, EPS * weights))
        pairs.append((settings.step, STEP * weights))
        if epoch == 70:
            similarity = remembered(*seen[69], num_classes)
            weights = torch.tensor(class_weights(similarity, strength), dtype=torch.float64)
            assert weights.min() > 0.1, "below our floor"
    return {"weights, margins and steps over 110 epochs": largest(pairs)}


def trades_step(here: World, weights: list[float]) -> Outcome:
    """TRADES with W on the margin, the step and the clean term, not on the KL."""
    model = here.fresh()
    scale = here.for_each(weights)
    examples = climb_from_clean(model, here, scale * EPS, scale * STEP)
    robust, clean = model(examples), model(here.images)
    labels = here.labels.tolist()
    natural = sum(weights[y] * surprise(clean[b], y) for b, y in enumerate(labels))
    loss = natural / len(labels) + BETA * total_kl(clean, robust) / len(labels)
    return trained(model, [here.images, examples], loss)


def at_step(here: World, weights: list[float], twice: bool) -> Outcome:
    """AT with W on the margin, the step and the loss; the code steps `twice`, then without W."""
    model, scale = here.fresh().eval(), here.for_each(weights)
    now = here.images + 0.001 * here.normal()
    for _ in range(10):
        now = now.detach().requires_grad_(True)
        (slope,) = torch.autograd.grad(total_surprise(model(now), here.labels), now)
        now = now.detach() + scale * STEP * slope.sign()
        now = torch.min(torch.max(now, here.images - scale * EPS), here.images + scale * EPS)
        if twice:
            now = now + STEP * slope.sign()
            now = torch.min(torch.max(now, here.images - EPS), here.images + EPS)
        now = now.clamp(0.0, 1.0)
    model.train()
    robust, labels = model(now), here.labels.tolist()
    loss = sum(weights[y] * surprise(robust[b], y) for b, y in enumerate(labels)) / len(labels)
    return trained(model, [now], loss)


def step_case(num_classes: int, text: str, theirs: Callable[..., Outcome]) -> dict[str, float]:
    """The epoch after the one whose statistics set W."""
    here = replace(world(num_classes, eps=EPS, step=STEP), epoch=1)
    logits, labels = epoch_of_logits(num_classes, seed=1)
    weights = class_weights(remembered(logits, labels, num_classes), 1.0)
    return ours(text, here, [{}, as_counts(logits, labels)]).beside(theirs(here, weights))


ON_TRADES = f"trades(step={STEP})+dafa(start=1)"
ON_AT = f"at(start=gaussian, batchnorm=eval, step={STEP})+dafa(start=1)"


def at_row(method: str, twice: bool, **facts) -> Comparison:
    def theirs(here: World, weights: list[float]) -> Outcome:
        return at_step(here, weights, twice)

    return Comparison(
        *(method, ON_AT, CODE),
        lambda: over(step_case(size, ON_AT, theirs) for size in SIZES),
        **facts,
    )


SECOND = "the code steps and projects once more without W, which undoes the class margins"

COMPARISONS = [
    Comparison(
        "DAFA on TRADES",
        ON_TRADES,
        CODE,
        lambda: over(step_case(size, ON_TRADES, trades_step) for size in SIZES),
        apart={"running statistics": ORDER},
    ),
    at_row("DAFA on AT, one step at a time", False, remark="without the code's second step"),
    at_row("DAFA on AT, two steps at a time", True, apart=dict.fromkeys(QUANTITIES, SECOND)),
    Comparison(
        "DAFA, W of 10 classes",
        "dafa(strength=1.0)",
        CODE,
        lambda: policy_case(10, 1.0),
        "W below 0.1 would be cut",
    ),
    Comparison(
        "DAFA, W of 100 classes",
        "dafa(strength=1.5)",
        CODE,
        lambda: policy_case(100, 1.5),
        "W below 0.1 would be cut",
    ),
]
