"""Label augmentation's released notebook; its operation is AugMix, ours the attack."""

from __future__ import annotations

import torch

from equality import cfa
from equality.comparison import Comparison, Released, over
from equality.equations import surprise
from equality.laboratory import SIZES, Outcome, World, ours, trained, world

CODE = Released("f-amerehi/LA", "db2a449")
SHARE = 0.15  # 1 − its λ of 0.85
RECIPE = f"at(batchnorm=batch)+labelaug(share={SHARE})"


def step(here: World) -> Outcome:
    """λ·CE to the class + (1 − λ)·CE to the operation's slot, over all K + 1 outputs."""
    model = here.fresh()
    delta = cfa.attacked(here.fresh(), here, [here.eps] * here.num_classes)
    attacked = here.images + delta
    outputs = model.outputs(attacked)
    parts = []
    for row, label in zip(outputs, here.labels.tolist(), strict=True):
        to_class, to_slot = surprise(row, label), surprise(row, here.num_classes)
        parts.append((1 - SHARE) * to_class + SHARE * to_slot)
    return trained(model, [attacked], torch.stack(parts).mean())


def case(num_classes: int) -> dict[str, float]:
    here = world(num_classes, extra=1)
    return ours(RECIPE, here).beside(step(here))


COMPARISONS = [
    Comparison(
        "label augmentation",
        RECIPE,
        CODE,
        lambda: over(map(case, SIZES)),
        "loss of given examples; the notebook trains on AugMix and attacks in audits only",
    ),
]
