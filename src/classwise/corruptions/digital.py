"""What cameras and files do: brightness, contrast, saturation, warps, large pixels, JPEG."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from classwise.corruptions.chance import Chance
from classwise.corruptions.filters import gaussian, warp
from classwise.corruptions.severities import nominal_size
from classwise.data.pictures import pillow

Three = tuple[float, float, float]
_LARGE = 3 * 64 * 64  # values of an image from which threads are worth their while


def contrast(images: Tensor, share: float, chance: Chance) -> Tensor:  # noqa: ARG001
    """Closer to the mean of each channel."""
    mean = images.mean((2, 3), keepdim=True)
    return torch.lerp(mean, images, share)


def brightness(images: Tensor, more: float, chance: Chance) -> Tensor:  # noqa: ARG001
    """A larger value in hue, saturation and value: all channels by one factor."""
    value = images.amax(1, keepdim=True)
    brighter = (value + more).clamp_(max=1)
    return torch.where(value > 0, images * (brighter / value), brighter)


def saturate(images: Tensor, level: tuple[float, float], chance: Chance) -> Tensor:  # noqa: ARG001
    """Paler or gaudier; what is grey has the hue of red, as everywhere in this colour space."""
    value, least = images.amax(1, keepdim=True), images.amin(1, keepdim=True)
    spread = value - least
    lit = value > 0
    before = torch.where(lit, spread / value, 0.0)
    after = (before * level[0] + level[1]).clamp_(0, 1)
    red = images.new_tensor([0.0, 1.0, 1.0]).view(1, 3, 1, 1)
    below = torch.where(spread > 0, (value - images) / spread, red)  # share of the way down
    return value * (1 - after * below)


def pixelate(images: Tensor, share: float, chance: Chance) -> Tensor:  # noqa: ARG001
    """Fewer, larger pixels, each the mean of those it covers."""
    height, width = images.shape[-2:]
    few = [max(1, int(size * share)) for size in (height, width)]
    tall, wide = (
        _box(size, part).to(images) for size, part in zip((height, width), few, strict=True)
    )
    # whole levels after each side, as Pillow has it
    narrow = (255 * images @ wide.T + 0.5 + 1e-3).floor_()
    small = (tall @ narrow + 0.5 + 1e-3).floor_().div_(255)
    rows, columns = (
        ((torch.arange(size, device=images.device) + 0.5) * (part / size)).long()
        for size, part in zip((height, width), few, strict=True)
    )
    return small[..., rows, :][..., columns]


def _box(size: int, part: int) -> Tensor:
    """The mean over the pixels whose middle a larger pixel covers, as a matrix."""
    scale = size / part
    middle = (torch.arange(part, dtype=torch.float64) + 0.5) * scale
    first, last = ((middle + way * scale / 2 + 0.5).floor()[:, None] for way in (-1, 1))
    column = torch.arange(size)
    inside = ((column >= first) & (column < last)).double()
    return inside / inside.sum(1, keepdim=True)


def elastic_transform(images: Tensor, level: Three, chance: Chance) -> Tensor:
    """An affine map, then every pixel moved by a smooth field.

    Lengths are for images of the nominal size and grow with the image.
    """
    height, width = images.shape[-2:]
    side = min(height, width)
    strength, sigma, far = (part * side / nominal_size(height, width) for part in level)
    moved = images
    if far:
        moved = warp(images, *_affine(height, width, far, chance), edge="mirror")
    if not strength:
        return moved
    drawn = chance.uniform("field", (2, height, width)) * 2 - 1
    right, down = (gaussian(drawn, sigma, 3.0, "reflect") * strength).unbind(1)
    rows = torch.arange(height, device=images.device)[:, None] + down
    columns = torch.arange(width, device=images.device) + right
    return warp(moved, rows, columns, edge="reflect")


def _affine(height: int, width: int, far: float, chance: Chance) -> tuple[Tensor, Tensor]:
    """From where each pixel comes if three points of a square are moved by up to `far`."""
    middle = torch.tensor([height // 2, width // 2], dtype=torch.float64)
    reach = max(1, min(height, width) // 3)
    corner = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]], dtype=torch.float64)
    before = middle + reach * corner
    drawn = chance.uniform("corners", (3, 2)).double() * 2 - 1
    after = before.to(drawn.device) + far * drawn
    ones = torch.ones(len(after), 3, 1, dtype=torch.float64, device=after.device)
    # the scripts hand (row, column) to a routine that reads (x, y)
    back = torch.linalg.solve(
        torch.cat([after, ones], 2), before.to(after).expand(len(after), 3, 2)
    )
    y, x = torch.meshgrid(
        torch.arange(height, device=after.device).double(),
        torch.arange(width, device=after.device).double(),
        indexing="ij",
    )
    spot = torch.stack([x, y, torch.ones_like(x)], -1) @ back[:, None]
    return spot[..., 1].float(), spot[..., 0].float()


def jpeg_compression(images: Tensor, quality: int, chance: Chance) -> Tensor:  # noqa: ARG001
    """Written as JPEG and read again, image by image: needs Pillow."""
    module = pillow("jpeg_compression")
    levels = (255 * images).round_().to(torch.uint8).permute(0, 2, 3, 1).cpu().contiguous().numpy()
    found = np.empty_like(levels)

    def one(row: int) -> None:
        pixels = levels[row]
        packed = io.BytesIO()
        picture = module.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0])
        picture.save(packed, "JPEG", quality=quality)
        found[row] = np.asarray(module.open(packed, formats=("JPEG",))).reshape(pixels.shape)

    if levels[0].size < _LARGE or len(levels) == 1:
        for row in range(len(levels)):
            one(row)
    else:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(one, range(len(levels))))
    return torch.from_numpy(found).permute(0, 3, 1, 2).to(images.device, images.dtype).div_(255)
