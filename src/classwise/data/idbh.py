"""IDBH, an augmentation for robust training: flip, cropshift, one colour or shape change, erasing.

Colour and shape operations give the very pixel values of Pillow, which the released code uses,
for whole batches on any device. Images are multiples of 1/255 throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from classwise.data.dataset import Allowed
from classwise.draws import Draws
from classwise.types import Images, PerSample

Levels: TypeAlias = Tensor  # n×c×h×w floats holding whole numbers from 0 to 255


class Operation(NamedTuple):
    """One of the eight changes, how likely it is, and the range of its strength."""

    name: str
    odds: float
    low: float = 0.0
    high: float = 0.0


OPERATIONS = {
    "colour": (
        Operation("saturation", 1 / 8, 0.1, 1.9),
        Operation("brightness", 1 / 8, 0.5, 1.9),
        Operation("contrast", 1 / 8, 0.5, 1.9),
        Operation("sharpness", 1 / 8, 0.1, 1.9),
        Operation("autocontrast", 1 / 8),
        Operation("equalise", 1 / 8),
        Operation("shear", 1 / 8, 0.05, 0.15),  # radians
        Operation("rotate", 1 / 8, 1, 11),  # whole degrees below the upper end
    ),
    "shape": (
        Operation("saturation", 0.08, 0.1, 1.9),
        Operation("brightness", 0.08, 0.5, 1.9),
        Operation("contrast", 0.04, 0.5, 1.9),
        Operation("sharpness", 0.08, 0.1, 1.9),
        Operation("autocontrast", 0.04),
        Operation("equalise", 0.08),
        Operation("shear", 0.3, 0.05, 0.35),
        Operation("rotate", 0.3, 1, 31),
    ),
}


@dataclass(frozen=True, slots=True)
class IDBH:
    """Flip, cropshift, exactly one operation, random erasing; all drawn per sample."""

    operations: Literal["colour", "shape"]  # which of the two are more likely
    erase: float  # probability of erasing
    area: float  # largest erased share of the image
    reach: int = 10  # largest shift, at 32 pixels
    flip: bool = True
    most: int | None = None  # pixels that the data allow; None is any number

    def for_data(self, allowed: Allowed) -> IDBH:
        """Never flip what has a wrong way round, nor move anything further than the data allow."""
        return replace(self, flip=self.flip and allowed.mirrored, most=allowed.moved)

    def __call__(self, images: Images, index: Tensor, seed: int, epoch: int) -> Images:
        """Transform a whole batch."""
        draws = Draws(seed, "augment", epoch).uniform(index, (11,), torch.float64)
        if self.flip:
            images = torch.where(_per_image(draws[:, 0] < 0.5), images.flip(3), images)
        levels = (cropshift(images, draws[:, 1:7], self.reach, self.most) * 255).round()
        levels = one_operation(levels, OPERATIONS[self.operations], draws[:, 7:])
        tries = Draws(seed, "augment erase", epoch).uniform(index, (41,), torch.float64)
        levels = random_erasing(levels, tries, self.erase, self.area)
        return (levels / 255).contiguous(memory_format=torch.channels_last)


def cropshift(images: Images, draws: Tensor, reach: int = 10, most: int | None = None) -> Images:
    """Cut a window and paste it elsewhere on black.

    s ~ U{0…reach} is split into s_x ~ U{0…s} and s_y = s − s_x; the window is s_x narrower and
    s_y lower than the image. Both its old and its new place are uniform. The reach is meant for
    32 pixels and is in proportion elsewhere, but `most` pixels at the most.
    """
    height, width = images.shape[2:]
    reach = round(reach * min(height, width) / 32)
    if most is not None:
        reach = min(reach, most)
    total = whole(draws[:, 0], torch.full_like(draws[:, 0], reach))
    narrow = whole(draws[:, 1], total)
    low = total - narrow

    def source(side: int, cut: PerSample, old: PerSample, new: PerSample) -> tuple[Tensor, Tensor]:
        """Where each output line comes from, and whether it comes from the window at all."""
        line = torch.arange(side, device=images.device)
        old, new = whole(old, cut)[:, None], whole(new, cut)[:, None]
        inside = (line >= new) & (line < new + side - cut[:, None])
        return (line - new + old).clamp(0, side - 1), inside

    rows, rows_in = source(height, low, draws[:, 2], draws[:, 3])
    columns, columns_in = source(width, narrow, draws[:, 4], draws[:, 5])
    sample = torch.arange(len(images), device=images.device)[:, None, None]
    taken = images.permute(0, 2, 3, 1)[sample, rows[:, :, None], columns[:, None, :]]
    inside = rows_in[:, :, None] & columns_in[:, None, :]
    return taken.permute(0, 3, 1, 2) * inside[:, None]


def whole(draws: PerSample, highest: PerSample) -> PerSample:
    """Whole numbers from 0 to each sample's own `highest`, from draws in [0, 1)."""
    return (draws * (highest + 1)).long()


def one_operation(levels: Levels, operations: tuple[Operation, ...], draws: Tensor) -> Levels:
    """Apply exactly one operation to each sample; draws: which, strength, sign, axis."""
    edges = torch.tensor([one.odds for one in operations], dtype=torch.float64).cumsum(0)[:-1]
    chosen = torch.bucketize(draws[:, 0].contiguous(), edges.to(draws), right=True)
    changed = levels.clone()
    for number, operation in enumerate(operations):
        rows = (chosen == number).nonzero().squeeze(1)
        if not len(rows):
            continue
        some, drawn = levels[rows], draws[rows]
        strength = operation.low + (operation.high - operation.low) * drawn[:, 1]
        if operation.name in ("shear", "rotate"):
            sign = torch.where(drawn[:, 2] < 0.5, -1.0, 1.0).to(strength)
            if operation.name == "rotate":
                changed[rows] = rotate(some, sign * strength.floor())
            else:
                changed[rows] = shear(some, sign * strength, drawn[:, 3] < 0.5)
        else:
            changed[rows] = COLOURS[operation.name](some, strength)
    return changed


def saturation(levels: Levels, factor: PerSample) -> Levels:
    """Towards or away from grey; one channel is grey already."""
    if levels.shape[1] == 1:
        return levels
    return blend(luminance(levels), levels, factor)


def brightness(levels: Levels, factor: PerSample) -> Levels:
    """Towards or away from black."""
    return blend(torch.zeros_like(levels), levels, factor)


def contrast(levels: Levels, factor: PerSample) -> Levels:
    """Towards or away from the image's mean grey."""
    mean = luminance(levels).double().mean((1, 2, 3))
    return blend(_per_image((mean + 0.5).floor().to(levels)), levels, factor)


def sharpness(levels: Levels, factor: PerSample) -> Levels:
    """Towards or away from a smoothed image, whose borders stay as they are."""
    smooth = levels.clone()
    if min(levels.shape[2:]) >= 3:
        around = F.avg_pool2d(levels, 3, stride=1, divisor_override=1)
        # weights 1 around and 5 in the middle, rounded to the nearest
        smooth[:, :, 1:-1, 1:-1] = ((around + 4 * levels[:, :, 1:-1, 1:-1]) / 13 + 0.5).floor()
    return blend(smooth, levels, factor)


def autocontrast(levels: Levels, factor: PerSample) -> Levels:  # noqa: ARG001
    """Stretch each channel to the whole range; a flat channel stays."""
    exact = levels.double()
    low, high = exact.amin((2, 3), keepdim=True), exact.amax((2, 3), keepdim=True)
    # a true division: torch turns 255 / x into 255 · (1 / x), which may round to another level
    scale = torch.full_like(low, 255) / (high - low).clamp(min=1)
    stretched = (exact * scale - low * scale).trunc().clamp(0, 255)
    return torch.where(high > low, stretched, exact).to(levels)


def equalise(levels: Levels, factor: PerSample) -> Levels:  # noqa: ARG001
    """Flatten each channel's histogram.

    With h(l) pixels at level l, level l becomes ⌊(⌊s/2⌋ + Σ_{k<l} h(k)) / s⌋, where s is a 255th
    of all pixels but those of the highest level. Small or flat images, with s = 0, stay.
    """
    flat = levels.flatten(2).long()
    counts = torch.zeros(*flat.shape[:2], 256, dtype=torch.long, device=flat.device)
    counts.scatter_add_(2, flat, torch.ones_like(flat))
    top = counts.gather(2, flat.amax(2, keepdim=True))
    step = (flat.shape[2] - top) // 255
    below = counts.cumsum(2) - counts
    table = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    changed = torch.where(step > 0, table.gather(2, flat), flat)
    return changed.view_as(levels).to(levels)


COLOURS: dict[str, Callable[[Levels, PerSample], Levels]] = {
    "saturation": saturation,
    "brightness": brightness,
    "contrast": contrast,
    "sharpness": sharpness,
    "autocontrast": autocontrast,
    "equalise": equalise,
}


def luminance(levels: Levels) -> Levels:
    """Grey of colour images as Pillow weighs it; the rounded mean of any other channels."""
    if levels.shape[1] == 3:
        weights = torch.tensor([19595, 38470, 7471], device=levels.device).view(1, 3, 1, 1)
        return (((levels.long() * weights).sum(1, keepdim=True) + 0x8000) >> 16).to(levels)
    return (levels.mean(1, keepdim=True) + 0.5).floor()


def blend(other: Levels, levels: Levels, factor: PerSample) -> Levels:
    """Return other + f·(levels − other), cut to 0…255 and down to whole levels."""
    return (other + _per_image(factor).to(levels) * (levels - other)).clamp(0, 255).floor()


def shear(levels: Levels, angle: PerSample, along_x: Tensor) -> Levels:
    """Slant by tan(angle) about the centre, along x or along y."""
    height, width = levels.shape[2:]
    slope = angle.tan()
    x, y = torch.where(along_x, slope, 0.0), torch.where(along_x, 0.0, slope)
    one = torch.ones_like(slope)
    return affine(levels, (one, x, -x * height / 2), (y, one, -y * width / 2))


def rotate(levels: Levels, degrees: PerSample) -> Levels:
    """Turn about the centre, counter-clockwise."""
    height, width = levels.shape[2:]
    angle = degrees * (-math.pi / 180)
    cos, sin = angle.cos(), angle.sin()
    x, y = width / 2, height / 2
    across = (cos, sin, x - cos * x - sin * y)
    down = (-sin, cos, y + sin * x - cos * y)
    return affine(levels, across, down)


def affine(levels: Levels, across: tuple[Tensor, ...], down: tuple[Tensor, ...]) -> Levels:
    """Take each pixel from (a·x + b·y + c, …), the nearest one, or black from outside.

    Sixteen binary places, as Pillow has them, so that ties fall alike.
    """
    height, width = levels.shape[2:]
    x = torch.arange(width, device=levels.device)
    y = torch.arange(height, device=levels.device)[:, None]

    def source(line: tuple[Tensor, ...]) -> Tensor:
        a, b, c = (part.double() for part in line)
        fixed = [(part * 65536 + 0.5).floor().long() for part in (a, b, c + (a + b) / 2)]
        a, b, c = (part.view(-1, 1, 1) for part in fixed)
        return (a * x + b * y + c) >> 16

    columns, rows = source(across), source(down)
    inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    place = rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)
    taken = levels.flatten(2).gather(2, place.flatten(1)[:, None].expand(-1, levels.shape[1], -1))
    return taken.view_as(levels) * inside[:, None]


def random_erasing(levels: Levels, draws: Tensor, odds: float, area: float) -> Levels:
    """Black out a rectangle: 2 % up to `area` of the image, between 0.3 and 3.3 times as high.

    Of ten tries the first that fits is taken; where none fits nothing is erased. The draws are
    one for whether, and ten each for area, ratio, row and column.
    """
    height, width = levels.shape[2:]
    size, ratio, row, column = draws[:, 1:].view(-1, 4, 10).unbind(1)
    pixels = height * width * (0.02 + (area - 0.02) * size)
    low, high = math.log(0.3), math.log(3.3)
    shape = (low + (high - low) * ratio).exp()
    tall, wide = (pixels * shape).sqrt().round(), (pixels / shape).sqrt().round()
    fits = (tall < height) & (wide < width)
    top, left = whole(row, (height - tall).clamp(min=0)), whole(column, (width - wide).clamp(min=0))
    first = fits.long().argmax(1, keepdim=True)  # the first that fits, if one does
    tall, wide, top, left = (part.gather(1, first) for part in (tall, wide, top, left))
    y = torch.arange(height, device=levels.device)
    x = torch.arange(width, device=levels.device)
    in_rows, in_columns = (y >= top) & (y < top + tall), (x >= left) & (x < left + wide)
    erased = in_rows[:, :, None] & in_columns[:, None, :]
    erased &= (fits.any(1) & (draws[:, 0] < odds)).view(-1, 1, 1)
    return levels.masked_fill(erased[:, None], 0.0)


def _per_image(values: PerSample) -> Tensor:
    return values.view(-1, 1, 1, 1)
