"""Networks that are one row of layers: LeNet-5, VGG-16 and VGG-19, all without BatchNorm."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

_SIXTEEN, _NINETEEN = (2, 2, 3, 3, 3), (2, 2, 4, 4, 4)  # convolutions between halvings


def lenet(channels: int, *, width: int = 6) -> tuple[nn.Module, int]:
    """LeNet-5 with ReLU and max-pooling; 61,706 parameters with 1 channel, 28×28, 10 classes.

    Images have at least 12×12 pixels; above 28×28 the last maps are averaged down to 5×5.
    """
    wide = 16 * width // 6
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, width, 5, padding=2),
            relu1=nn.ReLU(),
            shrink1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(width, wide, 5),
            relu2=nn.ReLU(),
            shrink2=nn.MaxPool2d(2),
            pool=nn.AdaptiveAvgPool2d(5),
            flatten=nn.Flatten(),
            hidden1=nn.Linear(25 * wide, 20 * width),
            relu3=nn.ReLU(),
            hidden2=nn.Linear(20 * width, 14 * width),
            relu4=nn.ReLU(),
        )
    ), 14 * width


def vgg16_224(channels: int, *, width: int = 64) -> tuple[nn.Module, int]:
    """VGG-16 for large images; 138,357,544 parameters with 3 channels and 1000 classes."""
    return _vgg(channels, width, _SIXTEEN, grid=7, hidden=64 * width)


def vgg16_32(channels: int, *, width: int = 64) -> tuple[nn.Module, int]:
    """VGG-16 for small images: pooled to 1×1, hidden layers of 512; the rest is VGG-16."""
    return _vgg(channels, width, _SIXTEEN, grid=1, hidden=8 * width)


def vgg19_224(channels: int, *, width: int = 64) -> tuple[nn.Module, int]:
    """VGG-19 for large images; 143,667,240 parameters with 3 channels and 1000 classes."""
    return _vgg(channels, width, _NINETEEN, grid=7, hidden=64 * width)


def vgg19_32(channels: int, *, width: int = 64) -> tuple[nn.Module, int]:
    """VGG-19 for small images: pooled to 1×1, hidden layers of 512; the rest is VGG-19."""
    return _vgg(channels, width, _NINETEEN, grid=1, hidden=8 * width)


def _vgg(
    channels: int, width: int, counts: Sequence[int], *, grid: int, hidden: int
) -> tuple[nn.Module, int]:
    """Convolutions and halvings, then two hidden layers with dropout.

    Without BatchNorm so deep a network only learns from He's normal law; hidden layers of the large
    form begin at N(0, 0.01²), as torchvision's do.
    """
    layers: list[nn.Module] = []
    inside = channels
    for stage, count in enumerate(counts):
        outside = width * min(2**stage, 8)
        for _ in range(count):
            conv = nn.Conv2d(inside, outside, 3, padding=1)
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
            layers += [conv, nn.ReLU()]
            inside = outside
        layers.append(nn.MaxPool2d(2, 2, ceil_mode=grid == 1))  # small images may be any size
    ends = [nn.Linear(inside * grid**2, hidden), nn.Linear(hidden, hidden)]
    for end in ends:
        if grid > 1:
            nn.init.normal_(end.weight, 0, 0.01)
            nn.init.zeros_(end.bias)
    return nn.Sequential(
        OrderedDict(
            layers=nn.Sequential(*layers),
            pool=nn.AdaptiveAvgPool2d(grid),
            flatten=nn.Flatten(),
            hidden1=ends[0],
            relu1=nn.ReLU(),
            drop1=nn.Dropout(),
            hidden2=ends[1],
            relu2=nn.ReLU(),
            drop2=nn.Dropout(),
        )
    ), hidden
