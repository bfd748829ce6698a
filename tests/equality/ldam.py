"""LDAM-DRW's released code."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from equality.comparison import Comparison, Released, over
from equality.equations import surprise
from equality.laboratory import SIZES, Outcome, World, ours, trained, world

CODE = Released("kaidic/LDAM-DRW", "2536330")
LARGEST, SCALE, SMOOTHING = 0.5, 30.0, 0.9999
RECIPE = "clean+ldam(reweight=1)"


def long_tail(num_classes: int) -> list[int]:
    """Class sizes that fall a hundredfold."""
    return [round(5000 * 0.01 ** (k / (num_classes - 1))) for k in range(num_classes)]


def class_weights(sizes: list[int], smoothing: float) -> list[float]:
    """Inverse effective numbers, scaled to a sum of K."""
    raw = [(1 - smoothing) / (1 - smoothing**size) for size in sizes]
    return [len(sizes) * weight / sum(raw) for weight in raw]


def cosines(model, images: Tensor) -> Tensor:
    """Features and class weights of length 1, multiplied."""
    features, directions = model.features(images), model.head.weight
    rows = []
    for h in features:
        unit = h / h.square().sum().sqrt()
        rows.append(torch.stack([(unit * w).sum() / w.square().sum().sqrt() for w in directions]))
    return torch.stack(rows)


def step(here: World, sizes: list[int], smoothing: float) -> Outcome:
    """Margins off the true cosine, all times s; a mean weighted by the classes' weights."""
    model = here.fresh()
    raw = [1 / size**0.25 for size in sizes]
    margins = [margin * LARGEST / max(raw) for margin in raw]
    weights = class_weights(sizes, smoothing)
    cosine = cosines(model, here.images)
    top, bottom = torch.zeros((), dtype=torch.float64), 0.0
    for row, label in zip(cosine, here.labels.tolist(), strict=True):
        taken = [SCALE * (z - margins[label] if k == label else z) for k, z in enumerate(row)]
        top = top + weights[label] * surprise(torch.stack(taken), label)
        bottom += weights[label]
    return trained(model, [here.images], top / bottom)


def case(num_classes: int) -> dict[str, float]:
    """Before the deferred weights and after."""
    here = world(num_classes, head="cosine")
    sizes = long_tail(num_classes)
    given = torch.tensor(sizes)
    early = ours(RECIPE, here, sizes=given).beside(step(here, sizes, 0.0))
    late = replace(here, epoch=1)
    found = ours(RECIPE, late, [{}, {}], sizes=given)
    return over([early, found.beside(step(late, sizes, SMOOTHING))])


COMPARISONS = [
    Comparison("LDAM with DRW", RECIPE, CODE, lambda: over(map(case, SIZES))),
]
