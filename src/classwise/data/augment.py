"""Whole-batch image transforms for training; every draw is keyed by the sample index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from classwise.draws import Draws
from classwise.errors import ClasswiseError
from classwise.types import Images

Transform: TypeAlias = Callable[[Images, Tensor, int, int], Images]  # images, index, seed, epoch


@runtime_checkable
class Fitting(Protocol):
    """A transform that wants to know the data before it begins."""

    def for_data(self, height: int, mirrored: bool) -> Transform:
        """Return the transform for images of this size, which may be mirrored or not."""


@dataclass(frozen=True, slots=True)
class CropFlip:
    """Pad by `pad` pixels, cut a window of the old size at a random place, flip half of them."""

    pad: int | None = None  # None is 4 at 32 pixels, in proportion elsewhere
    flip: bool = True  # where a mirror image is still of the same class
    padding: Literal["reflect", "zero"] = "reflect"

    def for_data(self, height: int, mirrored: bool) -> CropFlip:
        """Never flip what has a wrong way round, such as digits."""
        pad = self._pad(height)
        if self.padding == "reflect" and pad >= height:
            raise ClasswiseError(
                f"pad={pad} cannot reflect images of {height} pixels; "
                f"take at most {height - 1}, or padding=zero"
            )
        return replace(self, pad=pad, flip=self.flip and mirrored)

    def __call__(self, images: Images, index: Tensor, seed: int, epoch: int) -> Images:
        """Transform a whole batch with one gather."""
        n, _, height, width = images.shape
        pad = self._pad(min(height, width))
        draws = Draws(seed, "augment", epoch).uniform(index, (3,), torch.float64)
        top, left = (draws[:, :2] * (2 * pad + 1)).long().unbind(1)
        rows = top[:, None] + torch.arange(height, device=images.device)
        columns = left[:, None] + torch.arange(width, device=images.device)
        if self.flip:
            columns = torch.where(draws[:, 2:] < 0.5, columns.flip(1), columns)
        mode = "reflect" if self.padding == "reflect" else "constant"
        padded = F.pad(images, [pad] * 4, mode=mode) if pad else images
        sample = torch.arange(n, device=images.device)[:, None, None]
        cut = padded.permute(0, 2, 3, 1)[sample, rows[:, :, None], columns[:, None, :]]
        return cut.permute(0, 3, 1, 2)  # channels-last memory, as the models like it

    def _pad(self, side: int) -> int:
        # An image of a single pixel has nothing to reflect.
        return min(max(1, side // 8), side - 1) if self.pad is None else self.pad


def default_augment(height: int, mirrored: bool) -> CropFlip:
    """Choose the customary crop and flip: 4 pixels at 32, in proportion elsewhere."""
    return CropFlip().for_data(height, mirrored)


def fit_augment(augment: Transform | None, height: int, mirrored: bool) -> Transform:
    """The transform a recipe asks for, fitted to the data; crop and flip where it asks for none."""
    if augment is None:
        return default_augment(height, mirrored)
    return augment.for_data(height, mirrored) if isinstance(augment, Fitting) else augment
