"""The released code of class-balanced loss (TensorFlow)."""

from __future__ import annotations

import torch

from equality.comparison import Comparison, Released, largest, over
from equality.equations import surprise
from equality.laboratory import SIZES, Outcome, World, ours, settings_along, trained, world
from equality.ldam import class_weights, long_tail

CODE = Released("richardaecn/class-balanced-loss", "1d78572")
RECIPE = "clean+balanced"


def weights_case(num_classes: int, smoothing: float) -> dict[str, float]:
    sizes = long_tail(num_classes)
    text = f"clean+balanced(smoothing={smoothing})"
    found = settings_along(text, world(num_classes), [{}], sizes=torch.tensor(sizes))[0]
    expected = torch.tensor(class_weights(sizes, smoothing), dtype=torch.float64)
    return {"class weights": largest([(found.label_weight, expected)])}


def step(here: World, weights: list[float]) -> Outcome:
    """Weighted cross-entropy, divided by the weights of the batch as ours is."""
    model = here.fresh()
    logits, labels = model(here.images), here.labels.tolist()
    whole = sum(weights[y] * surprise(logits[b], y) for b, y in enumerate(labels))
    # The code divides by the number of samples; the factor between the two is exact.
    factor = len(labels) / sum(weights[y] for y in labels)
    return trained(model, [here.images], factor * whole / len(labels))


def step_case(num_classes: int) -> dict[str, float]:
    here, sizes = world(num_classes), long_tail(num_classes)
    found = ours(RECIPE, here, sizes=torch.tensor(sizes))
    return found.beside(step(here, class_weights(sizes, 0.9999)))


COMPARISONS = [
    Comparison(
        "class-balanced loss",
        RECIPE,
        CODE,
        lambda: over(map(step_case, SIZES)),
        "after the divisor: the code divides by the number of samples, we by the sum of weights",
    ),
    Comparison(
        "class-balanced weights",
        "balanced(smoothing=0.9, 0.99, 0.999, 0.9999)",
        CODE,
        lambda: over(weights_case(size, b) for size in SIZES for b in (0.9, 0.99, 0.999, 0.9999)),
    ),
]
