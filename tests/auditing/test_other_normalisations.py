"""A normalisation that is not the model's own is named, and its own is not."""

import pytest
import torch
from torch import nn

import classwise

LEVELS = torch.linspace(0.05, 0.95, 10)


class Brightness(nn.Module):
    """Calls the level that an image is nearest to, once both are brought to [−1, 1]."""

    def forward(self, x):
        return -200 * (x.mean((1, 2, 3))[:, None] - (LEVELS - 0.5) / 0.5).square()


def pictures(noise):
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(200) % 10
    level = LEVELS[labels] + noise * torch.randn(200, generator=rng)
    return level.clamp(0, 1).view(-1, 1, 1, 1).expand(-1, 3, 4, 4).contiguous(), labels


def flags(normalise, noise=0.02):
    report = classwise.audit(Brightness(), *pictures(noise), attacks=["clean"], normalise=normalise)
    return [f for f in report.about.get("flags", []) if f.startswith("wrong-normalisation")]


@pytest.mark.parametrize("given", ["imagenet", "cifar10", ((0.45,), (0.45,))])
def test_another_is_named(given):
    (flag,) = flags(given)
    assert "with --normalise half in the place of mean" in flag


@pytest.mark.parametrize("noise", [0.02, 0.06, 0.3])
def test_its_own_is_not(noise):
    assert flags("half", noise) == []
    assert flags(((0.498,), (0.502,)), noise) == []  # as good as its own
