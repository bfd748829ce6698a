"""Class counts of a model on held-out data."""

from __future__ import annotations

import torch
from torch import nn

from classwise.attacks.ball import Ball
from classwise.attacks.named import NamedAttack
from classwise.attacks.pgd import batchnorm_mode
from classwise.classes.counts import ClassCounts
from classwise.data.batches import Batches


def counts_under(
    model: nn.Module,
    batches: Batches,
    attack: NamedAttack,
    *,
    num_classes: int,
    eps: float,
    ball: Ball,
    seed: int,
) -> ClassCounts:
    """Confusion counts under an attack, in eval mode and with one eps for every class."""
    counts = torch.zeros(num_classes, num_classes, dtype=torch.int64, device=batches.labels.device)
    whole = ClassCounts(counts)
    with batchnorm_mode(model, "eval"):
        for batch in batches.in_order():
            images = attack.perturb(model, batch, eps=eps, ball=ball, seed=seed)
            with torch.no_grad():
                predicted = model(images).argmax(1)
            whole += ClassCounts.of(batch.labels, predicted, num_classes=num_classes)
    return whole.to("cpu")
