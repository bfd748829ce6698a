"""Three CIFAR-10 models that two cores can train in minutes, for the benchmarks of attacks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from classwise.attacks import PGD
from classwise.data.sources import open_data
from classwise.models import build_model


class Recipe(NamedTuple):
    """What is trained, and for how many seconds of processor time."""

    spec: str
    adversarial: bool
    seconds: int


MODELS = {
    "undefended resnet9": Recipe("resnet9(width=8)", adversarial=False, seconds=60),
    "robust resnet9": Recipe("resnet9(width=8)", adversarial=True, seconds=170),
    "robust cnn": Recipe("cnn(width=8)", adversarial=True, seconds=120),
}


def small_model(name: str, cache: Path) -> nn.Module:
    """Train a model, or take it from the cache."""
    recipe, path = MODELS[name], cache / f"{name.replace(' ', '-')}.safetensors"
    data = open_data("cifar10").train
    mean, deviation = data.channel_statistics
    model = build_model(recipe.spec, num_classes=10, channels=3, mean=mean, deviation=deviation)
    if not path.exists():
        print(f"training {name} for {recipe.seconds} s", flush=True)
        images = data.images[:20000].float().div_(255)
        _train(model, images, data.labels[:20000], recipe)
        cache.mkdir(parents=True, exist_ok=True)
        save_file(model.state_dict(), path)
    model.load_state_dict(load_file(path))
    return model.eval()


def test_images(count: int) -> tuple[Tensor, Tensor]:
    """Return the first test images and their labels."""
    test = open_data("cifar10").test
    return test.images[:count].float().div_(255), test.labels[:count]


def _train(model: nn.Module, images: Tensor, labels: Tensor, recipe: Recipe) -> None:
    """Adam with a falling rate; adversarial training begins after a third of the time."""
    rng = torch.Generator().manual_seed(0)
    images = images.contiguous(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    attack = PGD(model, eps=8 / 255, alpha=5 / 255, steps=2)
    began = time.process_time()
    while True:
        for rows in torch.split(torch.randperm(len(images), generator=rng), 100):
            share = (time.process_time() - began) / recipe.seconds
            if share > 1:
                return
            optimiser.param_groups[0]["lr"] = 2e-3 * max(0.02, 1 - share)
            x, y = images[rows], labels[rows]
            x = x.flip(3) if torch.rand(1, generator=rng) < 0.5 else x
            x = attack(x, y) if recipe.adversarial and share > 1 / 3 else x
            model.train()
            optimiser.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimiser.step()
