"""Residual networks of 18, 34 and 50 layers, in the forms used on CIFAR and on ImageNet.

On CIFAR the stem is one 3×3 convolution without max-pool, so a 32×32 image reaches the last stage
as 4×4; the average over positions makes any other size work too. Weights of that form start from
torch's defaults, as in the class-wise papers' code, those of the other from He's normal law, as
torchvision's do.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor, nn

from classwise.models.rectifier import Rectifier

Block: TypeAlias = Callable[[int, int, int], nn.Module]  # of inner and outer channels and a stride


def resnet18(channels: int, *, width: int = 64) -> tuple[nn.Module, int]:
    """ResNet-18 for small images; 11,173,962 parameters with 3 channels and 10 classes."""
    return _small(channels, width, Residual, (2, 2, 2, 2), 1)


def preactresnet18(channels: int, *, width: int = 64) -> tuple[nn.Module, int]:
    """Pre-activation ResNet-18; 11,172,170 parameters with 3 channels and 10 classes.

    BatchNorm and ReLU stand before the pooling, as the last block leaves its sum unnormalised. A
    widespread variant leaves that BatchNorm out and has 2·512 parameters fewer: 11,171,146.
    """
    return nn.Sequential(
        OrderedDict(
            stem=convolution(channels, width, 3),
            **_stages(PreActivated, width),
            norm=nn.BatchNorm2d(8 * width),
            relu=Rectifier(),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
        )
    ), 8 * width


def preactresnet18_nobn(channels: int, *, width: int = 64) -> tuple[nn.Module, int]:
    """Pre-activation ResNet-18 without BatchNorm before the pooling; 11,171,146 parameters."""
    return _bare_preactivated(PreActivated, channels, width)


def preactresnet18_raw(channels: int, *, width: int = 64) -> tuple[nn.Module, int]:
    """The same with shortcuts from x itself, as in Wong et al. (2020); 11,171,146 parameters.

    Its state dict cannot be told from that of `preactresnet18-nobn`, whose shortcuts see
    relu(BN(x)).
    """
    return _bare_preactivated(RawShortcut, channels, width)


def _bare_preactivated(block: Block, channels: int, width: int) -> tuple[nn.Module, int]:
    return nn.Sequential(
        OrderedDict(
            stem=convolution(channels, width, 3),
            **_stages(block, width),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
        )
    ), 8 * width


def resnet34_32(channels: int, *, width: int = 64) -> tuple[nn.Module, int]:
    """ResNet-34 for small images: a stem of one 3×3 convolution, without max-pool."""
    return _small(channels, width, Residual, _THIRTYFOUR, 1)


def resnet50_32(channels: int, *, width: int = 64) -> tuple[nn.Module, int]:
    """ResNet-50 for small images: a stem of one 3×3 convolution, without max-pool."""
    return _small(channels, width, Bottleneck, _THIRTYFOUR, 4)


def resnet18_224(channels: int, *, width: int = 64) -> tuple[nn.Module, int]:
    """ResNet-18 for large images; 11,689,512 parameters with 3 channels and 1000 classes."""
    return _large(channels, width, Residual, (2, 2, 2, 2), 1)


def resnet34_224(channels: int, *, width: int = 64) -> tuple[nn.Module, int]:
    """ResNet-34 for large images; 21,797,672 parameters with 3 channels and 1000 classes."""
    return _large(channels, width, Residual, _THIRTYFOUR, 1)


def resnet50(channels: int, *, width: int = 64) -> tuple[nn.Module, int]:
    """ResNet-50 for large images; 25,557,032 parameters with 3 channels and 1000 classes.

    Layers, their order and their first weights (He's normal law) are torchvision's, which keeps
    the stride in the 3×3 convolution of a block: a 224×224 image reaches the last stage as 7×7.
    """
    return _large(channels, width, Bottleneck, _THIRTYFOUR, 4)


_THIRTYFOUR = (3, 4, 6, 3)  # blocks of the four stages, of 50 layers, too


def _small(
    channels: int, width: int, block: Block, counts: tuple[int, ...], more: int
) -> tuple[nn.Module, int]:
    return nn.Sequential(
        OrderedDict(
            stem=convolution(channels, width, 3),
            norm=nn.BatchNorm2d(width),
            relu=Rectifier(),
            **_stages(block, width, counts, more),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
        )
    ), 8 * more * width


def _large(
    channels: int, width: int, block: Block, counts: tuple[int, ...], more: int
) -> tuple[nn.Module, int]:
    features = nn.Sequential(
        OrderedDict(
            stem=convolution(channels, width, 7, 2),
            norm=nn.BatchNorm2d(width),
            relu=Rectifier(),
            shrink=nn.MaxPool2d(3, 2, padding=1),
            **_stages(block, width, counts, more),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
        )
    )
    for module in features.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return features, 8 * more * width


class Residual(nn.Module):
    """relu(shortcut(x) + two convolutions of x), each convolution followed by BatchNorm."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = convolution(inside, outside, 3, stride)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = convolution(outside, outside, 3)
        self.norm2 = nn.BatchNorm2d(outside)
        self.relu = Rectifier()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                convolution(inside, outside, 1, stride), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch to the shortcut, then rectify."""
        branch = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        out: Tensor = self.relu(branch + self.shortcut(x))
        return out


class Bottleneck(nn.Module):
    """relu(shortcut(x) + a 1×1, a 3×3 and a 1×1 convolution of x), with a quarter of the channels.

    Each convolution is followed by BatchNorm; the 3×3 one changes the resolution.
    """

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        narrow = outside // 4
        self.conv1 = convolution(inside, narrow, 1)
        self.norm1 = nn.BatchNorm2d(narrow)
        self.conv2 = convolution(narrow, narrow, 3, stride)
        self.norm2 = nn.BatchNorm2d(narrow)
        self.conv3 = convolution(narrow, outside, 1)
        self.norm3 = nn.BatchNorm2d(outside)
        self.relu = Rectifier()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                convolution(inside, outside, 1, stride), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch to the shortcut, then rectify."""
        branch = self.relu(self.norm1(self.conv1(x)))
        branch = self.relu(self.norm2(self.conv2(branch)))
        out: Tensor = self.relu(self.norm3(self.conv3(branch)) + self.shortcut(x))
        return out


class PreActivated(nn.Module):
    """x + two convolutions of x, each preceded by BatchNorm and ReLU.

    Where the shape changes, a 1×1 convolution of the activated x takes the place of x.
    """

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inside)
        self.conv1 = convolution(inside, outside, 3, stride)
        self.norm2 = nn.BatchNorm2d(outside)
        self.conv2 = convolution(outside, outside, 3)
        self.relu = Rectifier()
        changes = stride != 1 or inside != outside
        self.shortcut = convolution(inside, outside, 1, stride) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch to the shortcut; the sum stays as it is."""
        active = self.relu(self.norm1(x))
        branch = self.conv2(self.relu(self.norm2(self.conv1(active))))
        out: Tensor = branch + (x if self.shortcut is None else self.shortcut(active))
        return out


class RawShortcut(PreActivated):
    """The same, but where the shape changes the 1×1 convolution is one of x itself."""

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch to the shortcut; the sum stays as it is."""
        branch = self.conv2(self.relu(self.norm2(self.conv1(self.relu(self.norm1(x))))))
        out: Tensor = branch + (x if self.shortcut is None else self.shortcut(x))
        return out


def stage(block: Block, inside: int, outside: int, count: int, stride: int) -> nn.Sequential:
    """`count` blocks in a row; the first one changes width and resolution."""
    first = block(inside, outside, stride)
    return nn.Sequential(first, *(block(outside, outside, 1) for _ in range(count - 1)))


def convolution(inside: int, outside: int, size: int, stride: int = 1) -> nn.Conv2d:
    """Convolution that keeps the resolution at stride 1; BatchNorm makes a bias idle."""
    return nn.Conv2d(inside, outside, size, stride, padding=size // 2, bias=False)


def _stages(
    block: Block, width: int, counts: tuple[int, ...] = (2, 2, 2, 2), more: int = 1
) -> dict[str, nn.Sequential]:
    """Four stages, each with twice the maps of the one before and `more` times those inside."""
    found, inside = {}, width
    for number, count in enumerate(counts):
        outside = more * width * 2**number
        found[f"stage{number + 1}"] = stage(block, inside, outside, count, 2 if number else 1)
        inside = outside
    return found
