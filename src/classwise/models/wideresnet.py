"""Wide residual networks, without dropout.

Convolutions start from He's normal law N(0, 2 / (outputs · size²)), as is customary for this
family; BatchNorm and the head keep torch's defaults.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn
from torch.nn.functional import pad, silu

from classwise.errors import ClasswiseError
from classwise.models.rectifier import Rectifier
from classwise.models.resnet import PreActivated, convolution, stage


def wrn(channels: int, *, depth: int = 28, widen: int = 10) -> tuple[nn.Module, int]:
    """Wide ResNet of any depth 6·N + 4 and any widening factor; 28 and 10 unless told."""
    count, rest = divmod(depth - 4, 6)
    if rest or count < 1:
        near = 6 * max(1, round((depth - 4) / 6)) + 4
        raise ClasswiseError(
            f"wrn(depth={depth}): the depth is 6·N + 4 (three stages of N blocks); take {near}"
        )
    width = 16 * widen
    features = nn.Sequential(
        OrderedDict(
            stem=convolution(channels, 16, 3),
            stage1=stage(PreActivated, 16, width, count, 1),
            stage2=stage(PreActivated, width, 2 * width, count, 2),
            stage3=stage(PreActivated, 2 * width, 4 * width, count, 2),
            norm=nn.BatchNorm2d(4 * width),
            relu=Rectifier(),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
        )
    )
    for module in features.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return features, 4 * width


def wrn_silu(channels: int, *, depth: int = 28, widen: int = 10) -> tuple[nn.Module, int]:
    """Wide ResNet with SiLU, as DeepMind's robust networks have it; 28 and 10 unless told.

    Where a block halves the resolution, its 3×3 convolution is padded to the right and below alone.
    """
    features, width = wrn(channels, depth=depth, widen=widen)
    assert isinstance(features, nn.Sequential)
    features.relu = nn.SiLU()
    for number in (1, 2, 3):
        blocks = features.get_submodule(f"stage{number}")
        assert isinstance(blocks, nn.Sequential)
        for place, block in enumerate(blocks):
            assert isinstance(block, PreActivated)
            blocks[place] = _PaddedSiLU(block)
    return features, width


class _PaddedSiLU(nn.Module):
    """x + two convolutions of x, each preceded by BatchNorm and SiLU."""

    def __init__(self, plain: PreActivated) -> None:
        super().__init__()
        self.norm1, self.conv1 = plain.norm1, plain.conv1
        self.norm2, self.conv2 = plain.norm2, plain.conv2
        self.shortcut = plain.shortcut
        if self.conv1.stride == (2, 2):
            self.conv1.padding = (0, 0)

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch to the shortcut; the sum stays as it is."""
        active = silu(self.norm1(x))
        padded = active if self.conv1.padding == (1, 1) else pad(active, (0, 1, 0, 1))
        branch = self.conv2(silu(self.norm2(self.conv1(padded))))
        out: Tensor = branch + (x if self.shortcut is None else self.shortcut(active))
        return out


def wrn_28_10(channels: int) -> tuple[nn.Module, int]:
    """Wide ResNet-28-10; 36,479,194 parameters with 3 channels and 10 classes."""
    return wrn(channels, depth=28, widen=10)


def wrn_34_10(channels: int) -> tuple[nn.Module, int]:
    """Wide ResNet-34-10; 46,160,474 parameters with 3 channels and 10 classes."""
    return wrn(channels, depth=34, widen=10)
