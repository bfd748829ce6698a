"""Networks whose blocks are branches side by side: GoogLeNet and Inception-v3.

As torchvision has them: BatchNorm behind every convolution, GoogLeNet's widest branch with a 3×3
convolution in the place of a 5×5 one, and no auxiliary heads, which only training used.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

Size = int | tuple[int, int]


def googlenet_224(channels: int, *, width: int = 64) -> tuple[nn.Module, int]:
    """GoogLeNet for large images; 6,624,904 parameters with 3 channels and 1000 classes."""
    return _googlenet(channels, width, small=False)


def googlenet_32(channels: int, *, width: int = 64) -> tuple[nn.Module, int]:
    """GoogLeNet for small images: its first convolution is 3×3 at stride 1, without max-pools."""
    return _googlenet(channels, width, small=True)


def inception_v3_299(channels: int, *, width: int = 32) -> tuple[nn.Module, int]:
    """Inception-v3 for images of 75 pixels and more; 23,834,568 parameters with 1000 classes."""
    return _inception_v3(channels, width, small=False)


def inception_v3_32(channels: int, *, width: int = 32) -> tuple[nn.Module, int]:
    """Inception-v3 for small images: a stem at stride 1 that pads, without max-pools."""
    return _inception_v3(channels, width, small=True)


class Unit(nn.Module):
    """Convolution, BatchNorm, ReLU."""

    def __init__(
        self, inside: int, outside: int, size: Size, stride: int = 1, padding: Size = 0
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, size, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outside, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        """What is above zero of the normalised maps."""
        return relu(self.bn(self.conv(x)))


class Branches(nn.Module):
    """Maps of several branches, side by side."""

    def __init__(self, **branches: nn.Module) -> None:
        super().__init__()
        for name, branch in branches.items():
            self.add_module(name, branch)

    def forward(self, x: Tensor) -> Tensor:
        """Ask every branch."""
        return torch.cat([branch(x) for branch in self.children()], 1)


def same(inside: int, outside: int, size: Size) -> Unit:
    """A unit that keeps the resolution."""
    high, wide = (size, size) if isinstance(size, int) else size
    return Unit(inside, outside, size, 1, (high // 2, wide // 2))


# Maps of the branches of GoogLeNet's blocks, in 64ths of the width times 64:
# 1×1; before and behind the first 3×3; before and behind the second; behind the pool.
_GOOGLE = {
    "inception3a": (64, 96, 128, 16, 32, 32),
    "inception3b": (128, 128, 192, 32, 96, 64),
    "inception4a": (192, 96, 208, 16, 48, 64),
    "inception4b": (160, 112, 224, 24, 64, 64),
    "inception4c": (128, 128, 256, 24, 64, 64),
    "inception4d": (112, 144, 288, 32, 64, 64),
    "inception4e": (256, 160, 320, 32, 128, 128),
    "inception5a": (256, 160, 320, 32, 128, 128),
    "inception5b": (384, 192, 384, 48, 128, 128),
}


def _googlenet(channels: int, width: int, *, small: bool) -> tuple[nn.Module, int]:
    def maps(count: int) -> int:
        return max(1, count * width // 64)

    parts: OrderedDict[str, nn.Module] = OrderedDict()
    parts["conv1"] = same(channels, width, 3) if small else Unit(channels, width, 7, 2, 3)
    if not small:
        parts["shrink1"] = nn.MaxPool2d(3, 2, ceil_mode=True)
    parts["conv2"] = same(width, width, 1)
    parts["conv3"] = same(width, maps(192), 3)
    if not small:
        parts["shrink2"] = nn.MaxPool2d(3, 2, ceil_mode=True)
    inside = maps(192)
    for name, counts in _GOOGLE.items():
        if name == "inception4a":
            parts["shrink3"] = nn.MaxPool2d(3, 2, ceil_mode=True)
        if name == "inception5a":
            parts["shrink4"] = nn.MaxPool2d(2, 2, ceil_mode=True)
        one, before, three, first, second, pooled = map(maps, counts)
        pool = nn.MaxPool2d(3, 1, padding=1, ceil_mode=True)
        parts[name] = Branches(
            branch1=same(inside, one, 1),
            branch2=nn.Sequential(same(inside, before, 1), same(before, three, 3)),
            branch3=nn.Sequential(same(inside, first, 1), same(first, second, 3)),
            branch4=nn.Sequential(pool, same(inside, pooled, 1)),
        )
        inside = one + three + second + pooled
    ends = {"pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "drop": nn.Dropout(0.2)}
    return nn.Sequential(parts | OrderedDict(ends)), inside


def _inception_v3(channels: int, width: int, *, small: bool) -> tuple[nn.Module, int]:
    def maps(count: int) -> int:
        return max(1, count * width // 32)

    edge = 1 if small else 0  # padding where the large form has none
    stem: OrderedDict[str, nn.Module] = OrderedDict()
    stem["Conv2d_1a_3x3"] = Unit(channels, maps(32), 3, 1 if small else 2, edge)
    stem["Conv2d_2a_3x3"] = Unit(maps(32), maps(32), 3, 1, edge)
    stem["Conv2d_2b_3x3"] = same(maps(32), maps(64), 3)
    if not small:
        stem["maxpool1"] = nn.MaxPool2d(3, 2)
    stem["Conv2d_3b_1x1"] = same(maps(64), maps(80), 1)
    stem["Conv2d_4a_3x3"] = Unit(maps(80), maps(192), 3, 1, edge)
    if not small:
        stem["maxpool2"] = nn.MaxPool2d(3, 2)
    blocks = _Blocks(width, maps(192))
    for name, pooled in (("5b", 32), ("5c", 64), ("5d", 64)):
        stem[f"Mixed_{name}"] = blocks.fives(pooled)
    stem["Mixed_6a"] = blocks.first_halving()
    for name, narrow in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        stem[f"Mixed_{name}"] = blocks.sevens(narrow)
    stem["Mixed_7a"] = blocks.second_halving()
    for name in ("7b", "7c"):
        stem[f"Mixed_{name}"] = blocks.forks()
    ends = {"pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "drop": nn.Dropout(0.5)}
    return nn.Sequential(stem | OrderedDict(ends)), blocks.inside


class _Blocks:
    """Inception-v3's five kinds of block; each knows how many maps the one before it gave."""

    def __init__(self, width: int, inside: int) -> None:
        self.width, self.inside = width, inside

    def maps(self, count: int) -> int:
        """A count at this width."""
        return max(1, count * self.width // 32)

    def row(self, *steps: tuple[int, Size]) -> nn.Sequential:
        """Units in a row, numbered from 1."""
        inside, units = self.inside, OrderedDict[str, nn.Module]()
        for number, (count, size) in enumerate(steps, 1):
            units[str(number)] = same(inside, self.maps(count), size)
            inside = self.maps(count)
        return nn.Sequential(units)

    def pooled(self, count: int) -> nn.Sequential:
        """An average over neighbours, then a unit."""
        unit = same(self.inside, self.maps(count), 1)
        return nn.Sequential(OrderedDict({"0": nn.AvgPool2d(3, 1, 1), "1": unit}))

    def _halved(self, count: int, *steps: tuple[int, Size]) -> nn.Sequential:
        """A row, and a 3×3 unit at stride 2 behind it."""
        row = self.row(*steps)
        inside = self.maps(steps[-1][0]) if steps else self.inside
        row.add_module(str(len(row) + 1), Unit(inside, self.maps(count), 3, 2))
        return row

    def _gives(self, *counts: int) -> None:
        self.inside = sum(map(self.maps, counts))

    def fives(self, pooled: int) -> Branches:
        """Branches with a 5×5, and with two 3×3 convolutions."""
        block = Branches(
            branch1x1=self.row((64, 1)),
            branch5x5=self.row((48, 1), (64, 5)),
            branch3x3dbl=self.row((64, 1), (96, 3), (96, 3)),
            branch_pool=self.pooled(pooled),
        )
        self._gives(64, 64, 96, pooled)
        return block

    def first_halving(self) -> Branches:
        """From 35×35 to 17×17 at 299 pixels."""
        block = Branches(
            branch3x3=self._halved(384),
            branch3x3dbl=self._halved(96, (64, 1), (96, 3)),
            branch_pool=nn.MaxPool2d(3, 2),
        )
        self.inside += self.maps(384) + self.maps(96)
        return block

    def sevens(self, narrow: int) -> Branches:
        """Branches with 7×7 convolutions, each taken apart into 1×7 and 7×1."""
        wide, high = (1, 7), (7, 1)
        block = Branches(
            branch1x1=self.row((192, 1)),
            branch7x7=self.row((narrow, 1), (narrow, wide), (192, high)),
            branch7x7dbl=self.row(
                (narrow, 1), (narrow, high), (narrow, wide), (narrow, high), (192, wide)
            ),
            branch_pool=self.pooled(192),
        )
        self._gives(192, 192, 192, 192)
        return block

    def second_halving(self) -> Branches:
        """From 17×17 to 8×8 at 299 pixels."""
        block = Branches(
            branch3x3=self._halved(320, (192, 1)),
            branch7x7x3=self._halved(192, (192, 1), (192, (1, 7)), (192, (7, 1))),
            branch_pool=nn.MaxPool2d(3, 2),
        )
        self.inside += self.maps(320) + self.maps(192)
        return block

    def forks(self) -> Branches:
        """Branches that end in a 1×3 and a 3×1 convolution, side by side."""

        def forked(row: nn.Sequential, inside: int) -> nn.Sequential:
            ends = {"a": same(inside, self.maps(384), (1, 3))}
            ends["b"] = same(inside, self.maps(384), (3, 1))
            row.add_module(str(len(row) + 1), Branches(**ends))
            return row

        block = Branches(
            branch1x1=self.row((320, 1)),
            branch3x3=forked(self.row((384, 1)), self.maps(384)),
            branch3x3dbl=forked(self.row((448, 1), (384, 3)), self.maps(384)),
            branch_pool=self.pooled(192),
        )
        self._gives(320, 384, 384, 384, 384, 192)
        return block
