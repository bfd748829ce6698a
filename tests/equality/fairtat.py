"""FAIR-TAT's code: targeted AT with class-wise margins (single file versions, no release)."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from classwise.classes.counts import ClassCounts
from classwise.classes.settings import TRAIN_ROBUST
from equality import cfa
from equality.class_statistics import table
from equality.comparison import Comparison, Released, largest, over
from equality.equations import total_surprise
from equality.laboratory import SIZES, Outcome, World, ours, settings_along, trained, world

CODE = Released("TejaswiniMedi/FAIR-TAT", "0154dc3 and 250377f")
RECIPE = "at+ccm(margin_floor=0.5)+fairtat(odds=softmax)"


def false_positive_share(confusion: Tensor) -> list[float]:
    """Of all errors, the share called each class, counted one cell at a time."""
    size = len(confusion)
    called, errors = [0] * size, 0
    for label in range(size):
        for guess in range(size):
            if guess != label:
                called[guess] += int(confusion[label, guess])
                errors += int(confusion[label, guess])
    return [count / errors for count in called]


def odds_of(confusion: Tensor) -> list[list[float]]:
    """softmax(2·C_FPS), drawn again while it is the own class: that class left out of its row."""
    powers = [math.exp(2 * share) for share in false_positive_share(confusion)]
    rows = []
    for label in range(len(powers)):
        others = sum(power for k, power in enumerate(powers) if k != label)
        rows.append([0.0 if k == label else power / others for k, power in enumerate(powers)])
    return rows


def policy_case(num_classes: int) -> dict[str, float]:
    """Fourteen epochs; the first aims at all others alike."""
    tables = [table(num_classes, seed=epoch) for epoch in range(13)]
    boundaries = [{}, *({TRAIN_ROBUST: ClassCounts(confusion)} for confusion in tables)]
    found = settings_along(RECIPE, world(num_classes), boundaries)
    even = [
        [0.0 if j == i else 1 / (num_classes - 1) for j in range(num_classes)]
        for i in range(num_classes)
    ]
    expected = [even, *map(odds_of, tables)]
    return {
        "target odds over 14 epochs": largest(
            (settings.target_odds, torch.tensor(rows, dtype=torch.float64))
            for settings, rows in zip(found, expected, strict=True)
        )
    }


def targets_of(here: World, odds: list[list[float]]) -> Tensor:
    """The target that each sample's draw falls on."""
    found = []
    for label, draw in zip(here.labels.tolist(), here.uniform("targets", (1,)), strict=True):
        edge, target = 0.0, None
        for k, share in enumerate(odds[label]):
            edge += share
            if target is None and draw.item() < edge:
                target = k
        found.append(target)
    return torch.tensor(found)


def step(here: World, margins: list[float], targets: Tensor) -> Outcome:
    """Descend towards the target, train on the label; two more clean forwards in train mode."""
    model, eps = here.fresh(), here.for_each(margins)
    delta = cfa.random_start(here, eps)
    for _ in range(10):
        delta = delta.detach().requires_grad_(True)
        loss = total_surprise(model(here.images + delta), targets) / len(targets)
        (slope,) = torch.autograd.grad(loss, delta)
        delta = cfa.moved(delta.detach(), -slope, here, eps)
    examples = here.images + delta
    loss = total_surprise(model(examples), here.labels) / len(here.labels)
    model(here.images)
    return trained(model, [examples], loss, after=lambda: model(here.images))


def step_case(num_classes: int) -> dict[str, float]:
    here = replace(world(num_classes), epoch=1)
    confusion = table(num_classes, seed=5)
    margins = [(cfa.FLOOR + t) * here.eps for t in cfa.train_accuracy(confusion)]
    targets = targets_of(here, odds_of(confusion))
    assert (targets != here.labels).all()
    theirs = step(here, margins, targets)
    return ours(RECIPE, here, [{}, {TRAIN_ROBUST: ClassCounts(confusion)}]).beside(theirs)


COMPARISONS = [
    Comparison(
        "FAIR-TAT on AT + CCM",
        RECIPE,
        CODE,
        lambda: over(map(step_case, SIZES)),
        apart={"running statistics": "the code forwards the clean batch twice more in train mode"},
    ),
    Comparison(
        "FAIR-TAT, target odds",
        RECIPE,
        CODE,
        lambda: over(map(policy_case, SIZES)),
        "our default is the paper's odds ∝ C_FPS; the code lets a lone y_t = y pass, we never do",
    ),
]
