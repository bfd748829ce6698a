"""Batches on which some samples fall and some stand, and one run of an attack on them."""

import torch
from asked import attacked, parse_attack

from classwise.types import Batch

ATTACKS = [
    "pgd-5(verdict=any)",
    "pgd-3(restarts=3,verdict=any)",
    "pgd-5(target=likely,verdict=any)",
    "cw-5(verdict=any)",
    "apgd-ce(steps=12)",
    "apgd-dlr(steps=12,restarts=2)",
    "apgd-t(steps=8,targets=2)",
    "fab-t(steps=6,targets=3)",
    "square(queries=40)",
    "square(queries=30,restarts=4)",
    "deepfool(steps=6)",
    "suite(fgsm,apgd-ce(steps=5),fab-t(steps=3),square(queries=12))",
]


COUNT = 60


def batch_of(count=COUNT, num_classes=4, seed=0, size=8):
    rng = torch.Generator().manual_seed(seed)
    images = torch.rand(count, 1, size, size, generator=rng, dtype=torch.float64)
    images = (images * 1.4 - 0.2).clamp(0, 1)  # with pixels at both ends
    return Batch(
        images, torch.randint(num_classes, (count,), generator=rng), torch.arange(count) * 3 + 100
    )


def labelled(model, batch, wrong=0.2):
    """Labels the model agrees with, but for some, so that there is something to attack."""
    with torch.no_grad():
        logits = model.eval()(batch.images)
    predicted = logits.argmax(1)
    some = torch.arange(len(batch)) < wrong * len(batch)
    return Batch(batch.images, torch.where(some, batch.labels, predicted), batch.index)


# Radii around which about half of the samples fall.
RADII = {"Linf": 0.06, "L2": 0.4}


def spread_of(norm, count=COUNT):
    return torch.linspace(0, 2 * RADII[norm], count, dtype=torch.float64)[
        torch.arange(count) * 7 % count
    ]


def run(scene, attack, rows=None, **facts):
    model, batch, ball, radius = scene
    if rows is not None:
        batch = Batch(batch.images[rows], batch.labels[rows], batch.index[rows])
        radius = radius[rows]
    return attacked(
        model, batch, parse_attack(attack), num_classes=4, radius=radius, ball=ball, **facts
    )
