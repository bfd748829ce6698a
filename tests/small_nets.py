"""Small networks with seeded weights, and what their answers and slopes are."""

import torch
from torch import nn

from classwise.models import build_model


def seeded(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().double().eval()


def built(name):
    facts = {"num_classes": 5, "channels": 3, "mean": (0.4, 0.5, 0.6), "deviation": (0.2, 0.3, 0.5)}
    return build_model(name, **facts)


def pictures(count, channels=3, height=16, width=16):
    rng = torch.Generator().manual_seed(1)
    return torch.rand(count, channels, height, width, generator=rng, dtype=torch.float64)


class Normalised(nn.Module):
    """(x − μ)/σ before a network, as many people write it."""

    def __init__(self, inside):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.2, 0.3, 0.5]).view(1, 3, 1, 1))
        self.inside = inside

    def forward(self, x):
        return self.inside((x - self.mean) / self.std)


def plain():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, stride=2, padding=1),
        nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(192, 5),
    )  # fmt: skip


def slope(model, images):
    images = images.clone().requires_grad_()
    return torch.autograd.grad(model(images).square().sum(), images)[0]
