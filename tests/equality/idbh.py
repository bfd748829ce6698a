"""IDBH's released code, image by image with Pillow, given the same random choices."""

from __future__ import annotations

import math

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from classwise.data.augment import fit_augment
from classwise.data.dataset import Allowed
from classwise.draws import Draws
from classwise.recipe_text import parse_recipe
from equality.comparison import Comparison, Released, largest

CODE = Released("TreeLLi/DA-Alone-Improves-AT", "38b740a")
SIDE, COUNT, SEED, EPOCH = 32, 400, 3, 2

COLOUR = [
    *((0.125, "color", 0.1, 1.9), (0.125, "brightness", 0.5, 1.9)),
    *((0.125, "contrast", 0.5, 1.9), (0.125, "sharpness", 0.1, 1.9)),
    *((0.125, "autocontrast", 0, 0), (0.125, "equalize", 0, 0)),
    *((0.125, "shear", 0.05, 0.15), (0.125, "rotate", 1, 11)),
]
SHAPE = [
    *((0.08, "color", 0.1, 1.9), (0.08, "brightness", 0.5, 1.9)),
    *((0.04, "contrast", 0.5, 1.9), (0.08, "sharpness", 0.1, 1.9)),
    *((0.04, "autocontrast", 0, 0), (0.08, "equalize", 0, 0)),
    *((0.3, "shear", 0.05, 0.35), (0.3, "rotate", 1, 31)),
]
# operations, one more than the largest shift, odds and largest area of erasing
VERSIONS = {
    "weak": (COLOUR, 11, 0.5, 0.33),
    "strong": (COLOUR, 11, 1.0, 0.33),
    "svhn": (SHAPE, 9, 1.0, 0.5),
}
ENHANCE = {
    "color": ImageEnhance.Color,
    "brightness": ImageEnhance.Brightness,
    "contrast": ImageEnhance.Contrast,
    "sharpness": ImageEnhance.Sharpness,
}


def pictures() -> Tensor:
    """Noise, and smooth, flat, dark and few-levelled images among it."""
    rng = torch.Generator().manual_seed(8)
    levels = torch.randint(256, (COUNT, 3, SIDE, SIDE), generator=rng)
    levels[1::5] = levels[1::5].sort(dim=3).values
    levels[2::25] = 77
    levels[3::25] = levels[3::25] // 8 + 30
    levels[4::25, :, : SIDE // 2] = 0
    return levels.to(torch.uint8)


def shifted(image: Image.Image, limit: int, draws: list[float]) -> Image.Image:
    """Cut a window, pad it on all sides, cut the old size out of that."""
    total = int(draws[0] * limit)
    cut_x = int(draws[1] * (total + 1))
    cut_y = total - cut_x
    top, put_top = int(draws[2] * (cut_y + 1)), int(draws[3] * (cut_y + 1))
    left, put_left = int(draws[4] * (cut_x + 1)), int(draws[5] * (cut_x + 1))
    window = image.crop((left, top, left + SIDE - cut_x, top + SIDE - cut_y))
    padded = Image.new("RGB", (SIDE + cut_x, SIDE + cut_y))
    padded.paste(window, (cut_x, cut_y))
    left, top = cut_x - put_left, cut_y - put_top
    return padded.crop((left, top, left + SIDE, top + SIDE))


def changed(image: Image.Image, space: list[tuple], draws: list[float]) -> Image.Image:
    """Exactly one operation; draws: which, strength, sign, axis."""
    which, amount, sign, axis = draws
    edge = 0.0
    for odds, name, low, high in space:  # noqa: B007
        edge += odds
        if which < edge - 1e-12:
            break
    strength = low + (high - low) * amount
    turn = -1 if sign < 0.5 else 1
    if name in ENHANCE:
        return ENHANCE[name](image).enhance(float(np.float32(strength)))
    if name == "autocontrast":
        return ImageOps.autocontrast(image)
    if name == "equalize":
        return ImageOps.equalize(image)
    if name == "rotate":
        return image.rotate(turn * int(strength), Image.Resampling.NEAREST)
    # A shear about the middle, as the library under the code writes its inverse.
    slope = math.tan(turn * strength)
    across = (1, slope, -slope * SIDE / 2) if axis < 0.5 else (1, 0, 0)
    down = (0, 1, 0) if axis < 0.5 else (slope, 1, -slope * SIDE / 2)
    matrix = (*across, *down)
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)


def erased(levels: Tensor, draws: list[float], odds: float, area: float) -> Tensor:
    """The first of ten rectangles that fits is blacked out."""
    if draws[0] >= odds:
        return levels
    size, ratio, row, column = (draws[1 + 10 * n : 11 + 10 * n] for n in range(4))
    _, height, width = levels.shape
    for n in range(10):
        share = height * width * (0.02 + (area - 0.02) * size[n])
        shape = math.exp(math.log(0.3) + math.log(3.3 / 0.3) * ratio[n])
        tall, wide = round(math.sqrt(share * shape)), round(math.sqrt(share / shape))
        if tall < height and wide < width:
            top, left = int(row[n] * (height - tall + 1)), int(column[n] * (width - wide + 1))
            levels = levels.clone()
            levels[:, top : top + tall, left : left + wide] = 0
            return levels
    return levels


def whole(levels: Tensor, version: str, draws: list[float], tries: list[float]) -> Tensor:
    """Flip, shift, one operation, erasing."""
    space, limit, odds, area = VERSIONS[version]
    image = Image.fromarray(levels.permute(1, 2, 0).contiguous().numpy())
    if draws[0] < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    image = changed(shifted(image, limit, draws[1:7]), space, draws[7:])
    pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).double()
    return erased(pixels, tries, odds, area) / 255


def case(version: str) -> dict[str, float]:
    """Ours in float32, as in use; every pixel."""
    levels, index = pictures(), torch.arange(COUNT) * 3 + 1
    augment = parse_recipe(f"at+idbh(strength={version})").slots.augment
    found = fit_augment(augment, Allowed(SIDE))(levels.float() / 255, index, SEED, EPOCH)
    draws = Draws(SEED, "augment", EPOCH).uniform(index, (11,), torch.float64).tolist()
    tries = Draws(SEED, "augment erase", EPOCH).uniform(index, (41,), torch.float64).tolist()
    expected = [whole(levels[b], version, draws[b], tries[b]) for b in range(COUNT)]
    rounded = (found * 255).round().double() / 255  # float32 holds the level, not its 255th
    assert (found.double() - rounded).abs().max() < 1e-7
    return {f"pixels of {COUNT} images": largest([(rounded, torch.stack(expected))])}


def row(version: str) -> Comparison:
    return Comparison(f"IDBH {version}", f"idbh(strength={version})", CODE, lambda: case(version))


COMPARISONS = [row(version) for version in VERSIONS]
