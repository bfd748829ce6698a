"""How fast weights move: the learning rate over a run, and the optimiser."""

from __future__ import annotations

import math

import torch
from torch import nn

from classwise.training.config import TrainConfig


def learning_rate(config: TrainConfig, epoch: float) -> float:
    """Rate at a (fractional) epoch.

    >>> config = TrainConfig(epochs=200)
    >>> [round(learning_rate(config, e), 4) for e in (0, 99.9, 100, 150)]
    [0.1, 0.1, 0.01, 0.001]
    """
    if config.schedule == "constant":
        return config.lr
    share = epoch / max(1, config.epochs)
    if config.schedule == "cosine":
        return config.lr * (1 + math.cos(math.pi * share)) / 2
    if config.schedule == "cyclic":  # straight up for two fifths of the run, straight down to 0
        return config.lr * (share / 0.4 if share < 0.4 else (1 - share) / 0.6)
    if config.schedule == "one-cycle":  # half a cosine up from lr / 25, half a cosine down to 0
        if share < 0.3:
            return config.lr * (1 - 0.96 * (1 + math.cos(math.pi * share / 0.3)) / 2)
        return config.lr * (1 + math.cos(math.pi * (share - 0.3) / 0.7)) / 2
    # Not rounded to whole epochs: a run of one epoch must not begin with a rate already dropped.
    passed = sum(epoch >= (drop * config.epochs if drop < 1 else drop) for drop in config.drops)
    return config.lr * 0.1**passed


def make_optimiser(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Weight decay on all parameters, as the papers' code does."""
    if config.optimiser == "adamw":
        return torch.optim.AdamW(model.parameters(), config.lr, weight_decay=config.weight_decay)
    return torch.optim.SGD(
        model.parameters(),
        config.lr,
        config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.nesterov,
    )
