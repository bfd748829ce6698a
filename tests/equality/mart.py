"""MART's released code."""

from __future__ import annotations

import torch
from torch import Tensor

from equality.comparison import Comparison, Released, over
from equality.equations import chances, climb, surprise, total_surprise
from equality.laboratory import SIZES, Outcome, World, ours, trained, world

CODE = Released("YisenWang/MART", "2d83e17")
EPS, STEP, BETA = 0.031, 0.007, 5.0
RECIPE = f"mart(step={STEP})"
TINY = 1e-12  # inside the code's logarithms
REMARK = "without the code's 1e-12 inside logarithms, so to 1e-10"


def loss_of(clean: Tensor, robust: Tensor, labels: Tensor, beta: float = BETA) -> Tensor:
    """Boosted CE, and a KL that counts more where the clean image is doubted."""
    whole = torch.zeros((), dtype=torch.float64)
    for nat, adv, label in zip(clean, robust, labels.tolist(), strict=True):
        p, q = chances(nat), chances(adv)
        order = q.argsort().tolist()
        rival = order[-2] if order[-1] == label else order[-1]
        whole = whole + surprise(adv, label) - (1.0001 - q[rival] + TINY).log()
        divergence = (p * (p.log() - (q + TINY).log())).sum()
        whole = whole + beta * divergence * (1.0000001 - p[label])
    return whole / len(labels)


def step(here: World) -> Outcome:
    model = here.fresh().eval()
    begin = here.images + 0.001 * here.normal()
    examples = climb(
        model, here.images, begin, lambda z: total_surprise(z, here.labels), EPS, STEP
    ).clamp(0.0, 1.0)
    model.train()
    clean, robust = model(here.images), model(examples)
    return trained(model, [here.images, examples], loss_of(clean, robust, here.labels))


def case(num_classes: int) -> dict[str, float]:
    here = world(num_classes, eps=EPS, step=STEP)
    return ours(RECIPE, here).beside(step(here))


COMPARISONS = [
    Comparison(
        "MART",
        RECIPE,
        CODE,
        lambda: over(map(case, SIZES)),
        REMARK,
        bound=1e-10,
    ),
]
