"""Training steps in double precision on a small network, for golden tests of whole steps."""

from dataclasses import replace

import torch

from classwise.attacks.ball import parse_norm
from classwise.attacks.carried import CARRIED
from classwise.data.augment import CropFlip
from classwise.laws.made_up import base_settings
from classwise.recipe_text import parse_recipe
from classwise.training.config import TrainConfig
from classwise.training.step import Step
from classwise.types import Batch

RATE = 0.1
STILL = CropFlip(pad=0, flip=False)


def step_of(text, model, augment=STILL, norm="Linf", classes=4):
    optimiser = torch.optim.SGD(model.parameters(), RATE)
    slots, device = parse_recipe(text).slots, torch.device("cpu")
    ball = parse_norm(norm)
    return Step(model, optimiser, slots, TrainConfig(), augment, ball, None, classes, device)


def memory_of(step, index):
    return {CARRIED: step.slots.carry.begin(index)}


def settings_of(margins, steps):
    margins, steps = (torch.tensor(one, dtype=torch.float64) for one in (margins, steps))
    return replace(base_settings(len(margins)), margin=margins, step=steps)


def images_of(count, seed=0, size=8, classes=4):
    """Unbalanced images with pixels at both ends of the range."""
    rng = torch.Generator().manual_seed(seed)
    images = torch.rand(count, 1, size, size, generator=rng, dtype=torch.float64)
    labels = torch.randint(classes, (count,), generator=rng) * torch.randint(
        2, (count,), generator=rng
    )
    return Batch((images * 1.4 - 0.2).clamp(0, 1), labels, torch.arange(count) + 10)


def part(batch, rows):
    rows = torch.as_tensor(rows)
    return Batch(batch.images[rows], batch.labels[rows], batch.index[rows])


def descend(model, loss):
    """One plain step of the weights."""
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for weight in model.parameters():
            weight -= RATE * weight.grad


def assert_same_models(one, other):
    for name, value in one.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[name], rtol=1e-9, atol=1e-12)
