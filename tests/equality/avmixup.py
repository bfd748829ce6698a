"""AVmixup's released code (TensorFlow)."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from equality.comparison import Comparison, Released, over
from equality.equations import chances, climb, total_surprise
from equality.laboratory import SIZES, Outcome, World, ours, trained, world

CODE = Released("Saehyung-Lee/cifar10_challenge", "1a8edc8")
REACH, FIRST, SECOND = 2.0, 1.0, 0.1  # γ, λ₁, λ₂
RECIPE = "at+avmixup"


def smooth(label: int, share: float, num_classes: int) -> Tensor:
    """The label with `share` on its class and the rest spread evenly."""
    rest = (1 - share) / (num_classes - 1)
    row = [share if k == label else rest for k in range(num_classes)]
    return torch.tensor(row, dtype=torch.float64)


def mixed(here: World, attacked: Tensor, weights: list[float]) -> tuple[Tensor, Tensor]:
    """Images and labels between each image and its vertex."""
    images, labels = [], []
    for b, label in enumerate(here.labels.tolist()):
        image, u = here.images[b], weights[b]
        vertex = (image + (attacked[b] - image) * REACH).clamp(0.0, 1.0)
        images.append(image * u + vertex * (1 - u))
        near = smooth(label, FIRST, here.num_classes)
        far = smooth(label, SECOND, here.num_classes)
        labels.append(near * u + far * (1 - u))
    return torch.stack(images), torch.stack(labels)


def step(here: World) -> Outcome:
    """Attack with batch statistics that leave the running ones alone, mix, one forward."""
    model = here.fresh()
    attacker = copy.deepcopy(model)
    begin = (here.images + (2 * here.uniform() - 1) * here.eps).clamp(0.0, 1.0)
    attacked = climb(
        attacker,
        here.images,
        begin,
        lambda z: total_surprise(z, here.labels),
        here.eps,
        here.step,
    )
    examples, soft = mixed(here, attacked, here.uniform("mix", ()).tolist())
    logits = model(examples)
    parts = [-(label * chances(z).log()).sum() for z, label in zip(logits, soft, strict=True)]
    return trained(model, [examples], torch.stack(parts).mean())


def case(num_classes: int) -> dict[str, float]:
    here = world(num_classes)
    return ours(RECIPE, here).beside(step(here))


COMPARISONS = [
    Comparison(
        "AVmixup",
        RECIPE,
        CODE,
        lambda: over(map(case, SIZES)),
        "on our network; the code standardises every image by itself",
    ),
]
