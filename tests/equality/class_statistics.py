"""Class statistics to hand to policies: whole tables, one per boundary."""

from __future__ import annotations

import torch
from torch import Tensor

from classwise.classes.counts import ClassCounts


def table(num_classes: int, seed: int, size: int = 60, spread: bool = False) -> Tensor:
    """Confusion counts with `size` samples of every class, or, `spread`, of unequal sizes."""
    rng = torch.Generator().manual_seed(seed)
    found = torch.zeros(num_classes, num_classes, dtype=torch.int64)
    for k in range(num_classes):
        total = size + (11 * k if spread else 0)
        right = int(torch.randint(total // 5, total, (1,), generator=rng))
        called = torch.randint(num_classes - 1, (total - right,), generator=rng)
        found[k] = torch.bincount(called + (called >= k), minlength=num_classes)
        found[k, k] = right
    return found


def counts(num_classes: int, seed: int, size: int = 60, spread: bool = False) -> ClassCounts:
    return ClassCounts(table(num_classes, seed, size, spread))
