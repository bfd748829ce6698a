"""Which class a targeted attack aims at."""

from __future__ import annotations

import torch
from torch import Tensor

from classwise.draws import Draws
from classwise.types import Labels, Logits


def draw_targets(labels: Labels, odds: Tensor, draws: Draws, index: Labels) -> Labels:
    """One target per sample from its own row of `odds`, never its own class.

    A row without any odds for another class becomes uniform over the others.

    >>> odds = torch.tensor([[0.0, 0.0, 1.0], [9.0, 1.0, 0.0]])
    >>> draw_targets(torch.tensor([0, 0]), odds, Draws(0, "targets"), torch.arange(2)).tolist()
    [2, 1]
    """
    others = torch.ones_like(odds).scatter_(1, labels[:, None], 0)
    kept = odds * others
    return draws.choice(index, torch.where(kept.sum(1, keepdim=True) > 0, kept, others))


def likeliest_others(logits: Logits, labels: Labels) -> Labels:
    """All classes but the true one, the likeliest first.

    >>> likeliest_others(torch.tensor([[1.0, 5.0, 3.0]]), torch.tensor([1])).tolist()
    [[2, 0]]
    """
    others = logits.scatter(1, labels[:, None], float("-inf"))
    return others.argsort(dim=1, descending=True, stable=True)[:, :-1]
