"""Networks as other people bring them: small residual ones without BatchNorm, and a large image's.

`scaled` and `grouped` are trained on CIFAR-10 by `nets.py`; `depthwise` has the shape of
EfficientNet-Lite0 for 224 pixels, and random weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, relu

LARGE = "depthwise, 224 pixels"
# expansion, channels, blocks, stride and kernel of each stage of EfficientNet-Lite0
STAGES = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
          (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)]  # fmt: skip


class Block(nn.Module):
    """x + scale·(two convolutions of x), normalised in groups or not at all."""

    def __init__(self, inside: int, outside: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1)
        self.norm1 = nn.GroupNorm(groups, outside) if groups else nn.Identity()
        self.norm2 = nn.GroupNorm(groups, outside) if groups else nn.Identity()
        self.scale = nn.Parameter(torch.full((1,), 1.0 if groups else 0.3))
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Conv2d(inside, outside, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch to the shortcut, then rectify."""
        branch = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
        return relu(self.shortcut(x) + self.scale * branch)


class Small(nn.Module):
    """A stem, three blocks and a linear head; images between 0 and 1."""

    def __init__(self, groups: int, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.blocks = nn.Sequential(
            Block(width, width, 1, groups),
            Block(width, 2 * width, 2, groups),
            Block(2 * width, 4 * width, 2, groups),
        )
        self.head = nn.Linear(4 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of ten classes."""
        found = self.blocks(relu(self.stem(2 * x - 1)))
        logits: Tensor = self.head(avg_pool2d(found, found.shape[-1]).flatten(1))
        return logits


def scaled() -> nn.Module:
    """Branches with a scale of their own, and no normalisation."""
    return Small(groups=0, width=16)


def grouped() -> nn.Module:
    """GroupNorm in every branch."""
    return Small(groups=4, width=16)


class Inverted(nn.Module):
    """1×1 wider, depthwise, 1×1 narrower, each with BatchNorm; added to x where it fits."""

    def __init__(self, inside: int, outside: int, wider: int, stride: int, kernel: int) -> None:
        super().__init__()
        hidden = inside * wider
        layers = [_normed(inside, hidden, 1), nn.ReLU6()] if wider > 1 else []
        depthwise = _normed(hidden, hidden, kernel, stride, hidden)
        self.branch = nn.Sequential(*layers, depthwise, nn.ReLU6(), _normed(hidden, outside, 1))
        self.adds = stride == 1 and inside == outside

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch where the shape stays."""
        found: Tensor = self.branch(x)
        return x + found if self.adds else found


def depthwise(classes: int = 1000) -> nn.Module:
    """4.7 million parameters in the shape of EfficientNet-Lite0, random weights, for 224 pixels."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [_normed(3, 32, 3, 2), nn.ReLU6()]
    inside = 32
    for wider, outside, blocks, stride, kernel in STAGES:
        for number in range(blocks):
            layers.append(Inverted(inside, outside, wider, 1 if number else stride, kernel))
            inside = outside
    layers += [_normed(inside, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(1280, classes)).eval()


def large_lesson(count: int) -> tuple[nn.Module, Tensor, Tensor]:
    """The depthwise network, images of 224 pixels, and the classes it gives them."""
    model = depthwise()
    images = torch.rand(count, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model, images, torch.cat([model(some).argmax(1) for some in torch.split(images, 16)])


def _normed(
    inside: int, outside: int, kernel: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    conv = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outside))
