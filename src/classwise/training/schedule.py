"""How fast weights move and how large the attack is over a run, and the optimiser."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from classwise.training.config import TrainConfig
from classwise.training.optimisers import without_compiler
from classwise.training.parts import parameter_groups


def learning_rate(config: TrainConfig, epoch: float, stride: float = 0.0) -> float:
    """Rate at a (fractional) epoch; `stride` is the share of an epoch that one step is.

    A warm-up of w epochs rises in a straight line to what the schedule says at w, so that its
    first step is one stride above 0 and its last one is there.

    >>> config = TrainConfig(epochs=200)
    >>> [round(learning_rate(config, e), 4) for e in (0, 99.9, 100, 150)]
    [0.1, 0.1, 0.01, 0.001]
    >>> slow = TrainConfig(epochs=200, warmup=1)
    >>> [round(learning_rate(slow, e, 0.25), 4) for e in (0, 0.25, 0.5, 0.75, 1)]
    [0.025, 0.05, 0.075, 0.1, 0.1]
    >>> friendly = TrainConfig(epochs=120, drops=(59, 89, (109, 0.5)))
    >>> round(learning_rate(friendly, 109), 4)
    0.0005
    """
    warm = epochs_of(config.warmup, config.epochs)
    if epoch < warm:
        return scheduled_rate(config, warm) * risen(warm, epoch, stride)
    return scheduled_rate(config, epoch)


@dataclass(frozen=True, slots=True)
class Pace:
    """Learning rate and size of the attack over a run with so many batches per epoch."""

    config: TrainConfig
    batches: int

    def rate(self, epoch: int, number: int = 0) -> float:
        """Learning rate of a batch."""
        return learning_rate(self.config, epoch + number / self.batches, 1 / self.batches)

    def eps_share(self, epoch: int, number: int = 0) -> float:
        """How much of its radius and step the attack of training has: 1 after its warm-up."""
        over = epochs_of(self.config.eps_warmup, self.config.epochs)
        return risen(over, epoch + number / self.batches, 1 / self.batches)

    def record(self, epoch: int) -> dict[str, float]:
        """What the history says of an epoch: its first batch."""
        warm = {"eps_share": self.eps_share(epoch)} if self.config.eps_warmup else {}
        return {"lr": self.rate(epoch), **warm}


def risen(over: float, epoch: float, stride: float) -> float:
    """A straight line from 0, never taken, to 1 at the last step of `over` epochs."""
    return min(1.0, (epoch + stride) / over) if over else 1.0


def epochs_of(when: float, epochs: int) -> float:
    """Turn a "when" into epochs: below 1 it is a fraction of the run, not rounded.

    A run of one epoch must not begin with a rate already dropped.
    """
    return when * epochs if when < 1 else when


def scheduled_rate(config: TrainConfig, epoch: float) -> float:
    """Rate at a (fractional) epoch by the schedule alone."""
    if config.schedule == "constant":
        return config.lr
    share = epoch / max(1, config.epochs)
    if config.schedule == "cosine":
        return config.final_lr + (config.lr - config.final_lr) * (1 + math.cos(math.pi * share)) / 2
    if config.schedule == "cyclic":  # straight up for two fifths of the run, straight down to 0
        return config.lr * (share / 0.4 if share < 0.4 else (1 - share) / 0.6)
    if config.schedule == "one-cycle":  # half a cosine up from lr / 25, half a cosine down to 0
        if share < 0.3:
            return config.lr * (1 - 0.96 * (1 + math.cos(math.pi * share / 0.3)) / 2)
        return config.lr * (1 + math.cos(math.pi * (share - 0.3) / 0.7)) / 2
    drops = [drop if isinstance(drop, tuple) else (drop, 0.1) for drop in config.drops]
    passed = [factor for when, factor in drops if epoch >= epochs_of(when, config.epochs)]
    return config.lr * math.prod(passed)


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Give every group of parameters its multiple of the rate."""
    for group in optimiser.param_groups:
        group["lr"] = rate * group["multiple"]


def make_optimiser(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Weight decay on all parameters, as the papers' code does; Adam's is part of the gradient."""
    groups = parameter_groups(model, config.rates)
    if config.optimiser == "adamw":
        return without_compiler(torch.optim.AdamW)(
            groups, config.lr, weight_decay=config.weight_decay
        )
    if config.optimiser == "adam":
        return without_compiler(torch.optim.Adam)(
            groups, config.lr, weight_decay=config.weight_decay
        )
    return without_compiler(torch.optim.SGD)(
        groups,
        config.lr,
        config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.nesterov,
    )
