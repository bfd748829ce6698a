"""The two stop rules of friendly training as plain loops, and all patterns of ten inspections."""

import itertools

import torch

from classwise.attacks.losses import CrossEntropy
from classwise.attacks.pgd import pgd

STEPS = 10
PATTERNS = list(itertools.product([True, False], repeat=STEPS))  # right or wrong, per inspection
EVERY = torch.tensor(PATTERNS)
ZEROS = torch.zeros(len(PATTERNS), dtype=torch.long)


def original_rule(pattern, patience):
    """How many updates one sample makes, straight from the description."""
    updates, counter = 0, patience
    for right in pattern:
        if right:
            updates += 1
        elif counter > 0:
            counter -= 1
            updates += 1
        else:
            return updates
    return updates


def counter_rule(pattern, patience):
    updates, counter = 0, patience
    for right in pattern:
        if counter <= 0:
            break
        updates += 1
        if not right:
            counter -= 1
    return updates


RULES = {"original": original_rule, "counter": counter_rule}


def scripted(right):
    """A model that is right or wrong at each call as the rows of `right` say."""
    calls = iter(right.T)

    def model(images):
        score = torch.where(next(calls), 1.0, -1.0).to(images)
        slope = 1e-3 * images.flatten(1).sum(1)
        return torch.stack([score + slope, torch.zeros_like(score)], dim=1)

    return model


def updates_made(stop, right):
    """Run PGD against the script: every update moves a pixel by exactly 1/64."""
    count = len(right)
    images = torch.full((count, 1, 2, 2), 0.5, dtype=torch.float64)
    labels = torch.zeros(count, dtype=torch.long)
    found = pgd(
        scripted(right),
        images,
        CrossEntropy(labels),
        radius=torch.full((count,), 0.5, dtype=torch.float64),
        step=torch.full((count,), 1 / 64, dtype=torch.float64),
        steps=right.shape[1],
        stop=stop.watch(labels, 0, 1),
    )
    moved = (0.5 - found).flatten(1) * 64
    assert (moved == moved[:, :1]).all()
    return moved[:, 0].long().tolist()
