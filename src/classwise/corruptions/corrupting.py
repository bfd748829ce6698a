"""Corrupt a batch: images in [0, 1] in, images in [0, 1] out, whole levels of 255 as files have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from classwise.corruptions import blurs, digital, noises, spatter, weather
from classwise.corruptions.chance import Chance
from classwise.corruptions.severities import (
    COLOURED,
    TABLES,
    check_name,
    check_severity,
    nominal_size,
)
from classwise.errors import ClasswiseError

# Raised whenever a corruption makes other images of the same ones; the others are at 1.
VERSIONS = {"frost": 2}
_AT_A_TIME = 1 << 19  # values of a piece, which then stays in the processor's cache
_BY_ROWS = {"spatter": 8}  # times as many where every row of a piece is a step
_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "gaussian_noise": noises.gaussian_noise,
    "shot_noise": noises.shot_noise,
    "impulse_noise": noises.impulse_noise,
    "speckle_noise": noises.speckle_noise,
    "gaussian_blur": blurs.gaussian_blur,
    "glass_blur": blurs.glass_blur,
    "defocus_blur": blurs.defocus_blur,
    "motion_blur": blurs.motion_blur,
    "zoom_blur": blurs.zoom_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "fog": weather.fog,
    "spatter": spatter.spatter,
    "contrast": digital.contrast,
    "brightness": digital.brightness,
    "saturate": digital.saturate,
    "jpeg_compression": digital.jpeg_compression,
    "pixelate": digital.pixelate,
    "elastic_transform": digital.elastic_transform,
}


def corrupt(
    images: Tensor,
    name: str,
    severity: int,
    index: Tensor | Sequence[int] | None = None,
    seed: int = 0,
    *,
    textures: tuple[Tensor, ...] | None = None,
) -> Tensor:
    """Corrupt images (n, channels, height, width): uint8, or floats in [0, 1].

    What becomes of an image depends on the image, its number in `index` and the seed alone. Images
    are taken and returned at whole levels of 255, as the published sets are; what a corruption
    makes is cut down to the level below, as there. `textures` are for frost.
    """
    check_name(name)
    check_severity(severity)
    check_images(images, name)
    if textures is not None and name != "frost":
        raise ClasswiseError(f"{name} takes no texture; frost does")
    for texture in textures or ():
        weather.check_texture(texture)
    numbers = torch.arange(len(images)) if index is None else torch.as_tensor(index)
    numbers = numbers.to(images.device)
    whole = images.dtype == torch.uint8
    found = torch.empty_like(images)
    step = max(1, _AT_A_TIME * _BY_ROWS.get(name, 1) // max(1, images.shape[1:].numel()))
    for begin in range(0, len(images), step):
        piece = images[begin : begin + step].float()
        levels = piece if whole else (piece * 255).round_()
        chance = Chance(seed, f"corruption {name}-{severity}", numbers[begin : begin + step])
        made = made_by(levels.div_(255), name, severity, chance, textures)
        found[begin : begin + step] = made if whole else made.to(found).div_(255)
    return found


def made_by(
    images: Tensor, name: str, severity: int, chance: Any, textures: tuple[Tensor, ...] | None
) -> Tensor:
    """Whole levels from 0 to 255 of one piece of a batch."""
    level = TABLES[nominal_size(*images.shape[-2:])][name][severity - 1]
    more = {} if textures is None else {"textures": textures}
    made = _FUNCTIONS[name](images, level, chance, **more)
    # a level that rounding has put a hair too low is still that level
    return made.clamp(0, 1).mul_(255).add_(1e-3).floor_()


def check_images(images: Tensor, name: str) -> None:
    """Refuse images that a corruption has no meaning for."""
    if images.dim() != 4 or images.shape[1] not in (1, 3):
        raise ClasswiseError(
            f"corruptions are for grey or colour images (n, 1 or 3, height, width); got "
            f"{tuple(images.shape)}"
        )
    if images.shape[1] == 1 and name in COLOURED:
        raise ClasswiseError(
            f"{name} changes colours, and these images are grey; leave it out, as c15 does"
        )
