"""Whole-batch image transforms for training; every draw is keyed by the sample index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from classwise.draws import Draws
from classwise.types import Images


@dataclass(frozen=True, slots=True)
class CropFlip:
    """Pad by `pad` pixels, cut a window of the old size at a random place, flip half of them."""

    pad: int
    flip: bool = True
    padding: Literal["reflect", "zero"] = "reflect"

    def __call__(self, images: Images, index: Tensor, seed: int, epoch: int) -> Images:
        """Transform a whole batch with one gather."""
        n, _, height, width = images.shape
        draws = Draws(seed, "augment", epoch).uniform(index, (3,), torch.float64)
        top, left = (draws[:, :2] * (2 * self.pad + 1)).long().unbind(1)
        rows = top[:, None] + torch.arange(height, device=images.device)
        columns = left[:, None] + torch.arange(width, device=images.device)
        if self.flip:
            columns = torch.where(draws[:, 2:] < 0.5, columns.flip(1), columns)
        mode = "reflect" if self.padding == "reflect" else "constant"
        padded = F.pad(images, [self.pad] * 4, mode=mode) if self.pad else images
        sample = torch.arange(n, device=images.device)[:, None, None]
        cut = padded.permute(0, 2, 3, 1)[sample, rows[:, :, None], columns[:, None, :]]
        return cut.permute(0, 3, 1, 2)  # channels-last memory, as the models like it


def default_augment(height: int, mirrored: bool) -> CropFlip:
    """Choose the customary crop and flip: 4 pixels at 32, in proportion elsewhere."""
    pad = min(max(1, height // 8), height - 1)  # a mirrored edge is narrower than the image
    return CropFlip(pad=pad, flip=mirrored)
