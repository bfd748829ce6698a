"""Weather: snow, frost and fog."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from classwise.corruptions.chance import Chance
from classwise.corruptions.filters import clipped_zoom, motion, trimmed
from classwise.corruptions.severities import LARGE, MIDDLE, SMALL, Snow, nominal_size
from classwise.errors import ClasswiseError

GREY = (0.299, 0.587, 0.114)  # how bright red, green and blue are
_TEXTURE = 512  # side of the procedural frost
_ROUGH = 1.1  # decay of its heights: neighbours differ by about 0.4 deviations, as in photographs
# Mean and deviation of the shade, and the tint, of each pane: four pale ones and a dark blue one.
_PANES = (
    (0.51, 0.072, (0.60, 1.13, 1.27)),
    (0.80, 0.086, (0.97, 1.0, 1.03)),
    (0.80, 0.086, (0.97, 1.0, 1.03)),
    (0.59, 0.112, (0.91, 1.0, 1.09)),
    (0.48, 0.170, (0.91, 1.0, 1.09)),
)
_SCALES = {SMALL: 0.2, MIDDLE: 0.3, LARGE: 1.0}  # of a frost texture, as the scripts shrink theirs


def grey(images: Tensor) -> Tensor:
    """Brightness of each pixel, in one channel."""
    if images.shape[1] == 1:
        return images
    return torch.einsum("nchw,c->nhw", images, images.new_tensor(GREY))[:, None]


def snow(images: Tensor, level: Snow, chance: Chance) -> Tensor:
    """Flakes in the wind before a paler image."""
    height, width = images.shape[-2:]
    drawn = chance.normal("flakes", (1, height, width))
    flakes = clipped_zoom(drawn * level.deviation + level.mean, level.zoom)
    flakes = flakes.masked_fill(flakes < level.threshold, 0).clamp_(0, 1)
    degrees = chance.uniform("wind", ()) * 90 - 135
    blown = motion(flakes, level.radius, level.sigma, degrees)
    blown = trimmed((255 * blown).round_().div_(255), height, width)
    pale = torch.maximum(images, grey(images) * 1.5 + 0.5)
    return level.kept * images + (1 - level.kept) * pale + blown + blown.flip(-1, -2)


def fog(images: Tensor, level: tuple[float, float], chance: Chance) -> Tensor:
    """A fractal cloud over the image, which loses contrast."""
    depth, decay = level
    height, width = images.shape[-2:]
    side = 2 ** math.ceil(math.log2(max(height, width)))
    cloud = plasma(side, decay, chance)[:, None, :height, :width]
    brightest = images.amax((1, 2, 3), keepdim=True)
    return (images + depth * cloud) * (brightest / (brightest + depth))


def plasma(side: int, decay: float, chance: Chance) -> Tensor:
    """Height maps by the diamond-square algorithm, from 0 to 1; the side is a power of two."""
    step, rough, field = side, 100.0, None
    while step >= 2:
        size = side // step
        drawn = chance.uniform(f"height {step}", (3, size, size)).double() * 2 - 1
        drawn *= rough * rough
        corner = drawn.new_zeros(len(drawn), 1, 1) if field is None else field
        across = corner + corner.roll(-1, 1)
        middle = (across + across.roll(-1, 2)) / 4 + drawn[:, 0]
        beside = middle + middle.roll(1, 1) + corner + corner.roll(-1, 2)
        below = middle + middle.roll(1, 2) + corner + corner.roll(-1, 1)
        field = drawn.new_empty(len(drawn), 2 * size, 2 * size)
        field[:, ::2, ::2], field[:, 1::2, 1::2] = corner, middle
        field[:, ::2, 1::2] = beside / 4 + drawn[:, 1]
        field[:, 1::2, ::2] = below / 4 + drawn[:, 2]
        step, rough = step // 2, rough / decay
    if field is None:
        return chance.uniform("height", (side, side)).double() * 0
    field -= field.amin((1, 2), keepdim=True)
    return (field / field.amax((1, 2), keepdim=True)).float()


def frost(
    images: Tensor,
    level: tuple[float, float],
    chance: Chance,
    textures: tuple[Tensor, ...] | None = None,
) -> Tensor:
    """A piece of a frozen window before the image; the texture may be given."""
    height, width = images.shape[-2:]
    pool = frozen(nominal_size(height, width)) if textures is None else textures
    drawn = chance.uniform("window", (3,)).double()
    found = torch.empty_like(images)
    which = (drawn[:, 0] * len(pool)).long()
    for number, texture in enumerate(pool):
        rows = (which == number).nonzero().flatten()
        if len(rows):
            wide = _large_enough(texture.to(images), height, width)
            found[rows] = _windows(wide, drawn[rows, 1:], height, width, images.shape[1])
    return level[0] * images + level[1] * found


def _windows(texture: Tensor, drawn: Tensor, height: int, width: int, channels: int) -> Tensor:
    """Pieces of a texture (3×h×w) at the places drawn."""
    room = torch.tensor([texture.shape[1] - height, texture.shape[2] - width]).clamp_min(1)
    top, left = (drawn * room.to(drawn)).long().unbind(1)
    rows = top[:, None] + torch.arange(height, device=top.device)
    columns = left[:, None] + torch.arange(width, device=left.device)
    pieces = texture[:, rows[:, :, None], columns[:, None, :]].transpose(0, 1)
    return grey(pieces) if channels == 1 else pieces


def check_texture(texture: Tensor) -> None:
    """Refuse what is no colour picture in [0, 1]."""
    if texture.dim() != 3 or len(texture) != 3 or not texture.is_floating_point():
        raise ClasswiseError(
            f"a frost texture is a float tensor of shape (3, height, width) in [0, 1]; got "
            f"{texture.dtype} of shape {tuple(texture.shape)}"
        )
    if not bool(((texture >= 0) & (texture <= 1)).all()):
        raise ClasswiseError("a frost texture has its values in [0, 1]")


def _large_enough(texture: Tensor, height: int, width: int) -> Tensor:
    """Enlarge a texture that a window would not fit into."""
    factor = max((height + 1) / texture.shape[1], (width + 1) / texture.shape[2])
    if factor <= 1:
        return texture
    size = [math.ceil(side * factor) for side in texture.shape[1:]]
    return F.interpolate(texture[None], size=size, mode="bilinear", align_corners=True)[0]


@lru_cache(maxsize=3)
def frozen(nominal: int) -> tuple[Tensor, ...]:
    """Procedural frost: bright ridges of fractal noise, as coarse as the size of images wants.

    Means, deviations and neighbouring pixels are about as far apart as in the five photographs that
    ImageNet-C draws from; the pictures themselves are none of ours to pass on.
    """
    heights = plasma(_TEXTURE, _ROUGH, Chance(0, "frost texture", torch.arange(len(_PANES))))
    ridges = 1 - (2 * heights - 1).abs()
    middle = ridges.mean((1, 2), keepdim=True)
    spread = ridges.std((1, 2), keepdim=True)
    shades = torch.tensor([[mean, deviation] for mean, deviation, _ in _PANES]).view(-1, 2, 1, 1)
    shade = (shades[:, 0] + shades[:, 1] * (ridges - middle) / spread)[:, None]
    tints = torch.tensor([tint for _, _, tint in _PANES]).view(-1, 3, 1, 1)
    whole = (shade * tints).clamp(0, 1)
    scale = _SCALES[nominal]
    if scale < 1:
        side = math.ceil(_TEXTURE * scale)
        whole = F.interpolate(whole, size=(side, side), mode="area")
    return tuple(whole)
