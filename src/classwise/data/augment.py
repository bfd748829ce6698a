"""Whole-batch image transforms for training; every draw is keyed by the sample index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from classwise.data.dataset import Allowed
from classwise.draws import Draws
from classwise.errors import ClasswiseError
from classwise.types import Images

Transform: TypeAlias = Callable[[Images, Tensor, int, int], Images]  # images, index, seed, epoch
Places: TypeAlias = tuple[Tensor, Tensor]  # n×h×1 row numbers, n×1×w column numbers


@runtime_checkable
class Fitting(Protocol):
    """A transform that wants to know the data before it begins."""

    def for_data(self, allowed: Allowed) -> Transform:
        """Return the transform that keeps to what these images allow."""


@runtime_checkable
class Placing(Protocol):
    """A transform that only moves pixels, so that a map of them can follow, and be taken back."""

    def frame(self, shape: torch.Size) -> tuple[int, int]:
        """Height and width of all that the transform can show of images of this shape."""

    def places(self, shape: torch.Size, index: Tensor, seed: int, epoch: int) -> Places:
        """Where in its frame every pixel of a transformed image comes from."""


@dataclass(frozen=True, slots=True)
class CropFlip:
    """Pad by `pad` pixels, cut a window of the old size at a random place, flip half of them.

    Of images that were stored larger by `spare` pixels, those are the border, as far as they go.
    """

    pad: int | None = None  # None is as far as the data allow: 4 at 32 pixels, 0 for digits
    flip: bool = True  # where a mirror image is still of the same class
    padding: Literal["reflect", "zero"] = "reflect"
    spare: int = field(default=0, repr=False)  # of the data; set when it is fitted to them

    def for_data(self, allowed: Allowed) -> CropFlip:
        """Never flip what has a wrong way round, and move as far as allowed unless told how far."""
        pad, side = allowed.reach if self.pad is None else self.pad, allowed.side
        if self.padding == "reflect" and pad >= side:
            raise ClasswiseError(
                f"pad={pad} cannot reflect images of {side} pixels; "
                f"take at most {side - 1}, or padding=zero"
            )
        flip = self.flip and allowed.mirrored
        return replace(self, pad=pad, flip=flip, spare=allowed.spare)

    def __call__(self, images: Images, index: Tensor, seed: int, epoch: int) -> Images:
        """Transform a whole batch with one gather."""
        count, channels, *sides = images.shape
        shape = torch.Size((count, channels, *(side - self.spare for side in sides)))
        pad = self._reach(min(shape[2:]))
        padded = self._bordered(images, pad - self.spare // 2)
        if not (pad or self.flip):
            return padded.contiguous(memory_format=torch.channels_last)
        rows, columns = self.places(shape, index, seed, epoch)
        sample = torch.arange(len(images), device=images.device)[:, None, None]
        cut = padded.permute(0, 2, 3, 1)[sample, rows, columns]
        return cut.permute(0, 3, 1, 2)  # channels-last memory, as the models like it

    def frame(self, shape: torch.Size) -> tuple[int, int]:
        """The image and its border."""
        height, width = shape[-2:]
        pad = self._reach(min(height, width))
        return height + 2 * pad, width + 2 * pad

    def places(self, shape: torch.Size, index: Tensor, seed: int, epoch: int) -> Places:
        """Rows and columns of each window."""
        height, width = shape[-2:]
        pad = self._reach(min(height, width))
        draws = Draws(seed, "augment", epoch).uniform(index, (3,), torch.float64)
        top, left = (draws[:, :2] * (2 * pad + 1)).long().unbind(1)
        rows = top[:, None] + torch.arange(height, device=index.device)
        columns = left[:, None] + torch.arange(width, device=index.device)
        if self.flip:
            columns = torch.where(draws[:, 2:] < 0.5, columns.flip(1), columns)
        return rows[:, :, None], columns[:, None, :]

    def _bordered(self, images: Images, more: int) -> Images:
        """With so many more pixels on every side, or so many fewer."""
        if more > 0:
            mode = "reflect" if self.padding == "reflect" else "constant"
            return F.pad(images, [more] * 4, mode=mode)
        height, width = images.shape[2:]
        return images[:, :, -more : height + more, -more : width + more] if more else images

    def _reach(self, side: int) -> int:
        return Allowed(side).reach if self.pad is None else self.pad


@dataclass(frozen=True, slots=True)
class Noisy:
    """Another transform, and then Gaussian noise on every value; it is not clipped to [0, 1]."""

    inside: Transform
    sigma: float

    def __call__(self, images: Images, index: Tensor, seed: int, epoch: int) -> Images:
        """Transform a whole batch; the noise is another one in every epoch."""
        moved = self.inside(images, index, seed, epoch)
        noise = Draws(seed, "noise", epoch).noise(index, moved.shape[1:])
        return moved + self.sigma * noise.to(moved)


def fit_augment(
    augment: Transform | None, allowed: Allowed, noise: float | None = None
) -> Transform:
    """The transform a recipe asks for, fitted to the data; crop and flip where it asks for none.

    `noise` is the standard deviation of what is added afterwards.
    """
    if augment is None:
        augment = CropFlip()
    if allowed.spare and not isinstance(augment, CropFlip):
        raise ClasswiseError(
            f"images were stored with spare={allowed.spare} pixels, out of which crop cuts its "
            f"windows, but {type(augment).__name__} does not; set spare=0, or use crop"
        )
    fitted = augment.for_data(allowed) if isinstance(augment, Fitting) else augment
    return fitted if noise is None else Noisy(fitted, noise)
