"""How images and weights are laid out in memory while a network trains."""

from __future__ import annotations

import torch
from torch import nn

_FEW = 16  # channels; the crashes had 2, 3 and 4


def training_layout(model: nn.Module, device: torch.device) -> torch.memory_format:
    """Channels last, which convolutions like, but for networks that crash with it.

    On one thread torch 2.13 was seen to end with a segmentation fault in the weight gradient of a
    1×1 convolution with stride 2 in channels last, from 4 channels to 8, 2 to 4 and 3 to 64. It
    depends on the machine: on some nobody could make it happen. Such networks are small, and the
    usual layout costs them little.
    """
    at_risk = device.type == "cpu" and any(map(_may_crash, model.modules()))
    return torch.contiguous_format if at_risk else torch.channels_last


def _may_crash(part: nn.Module) -> bool:
    return (
        isinstance(part, nn.Conv2d)
        and part.kernel_size == (1, 1)
        and max(part.stride) > 1
        and part.in_channels // part.groups < _FEW
    )
