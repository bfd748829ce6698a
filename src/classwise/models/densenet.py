"""Densely connected networks: every layer sees all maps that were made before it in its block."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from classwise.models.resnet import convolution

_121, _169 = (6, 12, 24, 16), (6, 12, 32, 32)  # layers of the four blocks


def densenet121_224(channels: int, *, width: int = 32) -> tuple[nn.Module, int]:
    """DenseNet-121 for large images; 7,978,856 parameters with 3 channels and 1000 classes."""
    return _densenet(channels, width, _121, small=False)


def densenet121_32(channels: int, *, width: int = 32) -> tuple[nn.Module, int]:
    """DenseNet-121 for small images: a stem of one 3×3 convolution, without max-pool."""
    return _densenet(channels, width, _121, small=True)


def densenet169_224(channels: int, *, width: int = 32) -> tuple[nn.Module, int]:
    """DenseNet-169 for large images; 14,149,480 parameters with 3 channels and 1000 classes."""
    return _densenet(channels, width, _169, small=False)


def densenet169_32(channels: int, *, width: int = 32) -> tuple[nn.Module, int]:
    """DenseNet-169 for small images: a stem of one 3×3 convolution, without max-pool."""
    return _densenet(channels, width, _169, small=True)


def _densenet(
    channels: int, growth: int, counts: Sequence[int], *, small: bool
) -> tuple[nn.Module, int]:
    """The width is the growth rate: maps that a layer adds."""
    wide = 2 * growth
    parts: OrderedDict[str, nn.Module] = OrderedDict(
        stem=convolution(channels, wide, 3) if small else convolution(channels, wide, 7, 2),
        norm=nn.BatchNorm2d(wide),
        relu=nn.ReLU(),
    )
    if not small:
        parts["shrink"] = nn.MaxPool2d(3, 2, padding=1)
    for number, count in enumerate(counts, 1):
        parts[f"dense{number}"] = _Dense(wide, growth, count)
        wide += count * growth
        if number < len(counts):
            parts[f"turn{number}"] = nn.Sequential(
                OrderedDict(
                    norm=nn.BatchNorm2d(wide),
                    relu=nn.ReLU(),
                    conv=convolution(wide, wide // 2, 1),
                    shrink=nn.AvgPool2d(2, 2),
                )
            )
            wide //= 2
    parts |= OrderedDict[str, nn.Module](
        last=nn.BatchNorm2d(wide),
        active=nn.ReLU(),
        pool=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
    )
    features = nn.Sequential(parts)
    for module in features.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    return features, wide


class _Dense(nn.Module):
    """Layers that each add a few maps to all that are there."""

    def __init__(self, inside: int, growth: int, count: int) -> None:
        super().__init__()
        self.count = count
        for number in range(count):
            layer = _Layer(inside + number * growth, growth)
            self.add_module(f"layer{number + 1}", layer)

    def forward(self, x: Tensor) -> Tensor:
        """What came in, and what every layer added."""
        for number in range(self.count):
            x = torch.cat([x, self.get_submodule(f"layer{number + 1}")(x)], 1)
        return x


class _Layer(nn.Module):
    """BatchNorm, ReLU and convolution twice: 1×1 to four times the growth rate, 3×3 to it."""

    def __init__(self, inside: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inside)
        self.conv1 = convolution(inside, 4 * growth, 1)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = convolution(4 * growth, growth, 3)

    def forward(self, x: Tensor) -> Tensor:
        """New maps."""
        inner = self.conv1(relu(self.norm1(x)))
        out: Tensor = self.conv2(relu(self.norm2(inner)))
        return out
