"""Small networks for digits and for two cores; each returns (features, width of its output)."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from classwise.models.rectifier import Rectifier


def cnn(channels: int, *, width: int = 16) -> tuple[nn.Module, int]:
    """Three plain convolutions and a hidden layer, without BatchNorm; any input size."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, width, 3, padding=1),
            relu1=Rectifier(),
            conv2=nn.Conv2d(width, 2 * width, 3, padding=1),
            relu2=Rectifier(),
            conv3=nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1),
            relu3=Rectifier(),
            pool=nn.AdaptiveAvgPool2d(4),
            flatten=nn.Flatten(),
            hidden=nn.Linear(64 * width, 8 * width),
            relu4=Rectifier(),
        )
    ), 8 * width


def resnet9(channels: int, *, width: int = 64) -> tuple[nn.Module, int]:
    """Eight convolutions with two residual pairs, and the head as the ninth layer."""
    return nn.Sequential(
        OrderedDict(
            stem=_block(channels, width),
            down1=_block(width, 2 * width, shrink=True),
            pair1=_Residual(2 * width),
            down2=_block(2 * width, 4 * width, shrink=True),
            down3=_block(4 * width, 8 * width, shrink=True),
            pair2=_Residual(8 * width),
            pool=nn.AdaptiveMaxPool2d(1),
            flatten=nn.Flatten(),
        )
    ), 8 * width


def _block(inside: int, outside: int, shrink: bool = False) -> nn.Sequential:
    # ceil_mode lets images of any size, even 1×1, pass three halvings. A maximum may be rectified
    # afterwards, bit for bit and slopes too: a quarter of the work.
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        *([nn.MaxPool2d(2, ceil_mode=True)] if shrink else []),
        Rectifier(),
    )


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.pair = nn.Sequential(_block(width, width), _block(width, width))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.pair(x)
        return out
