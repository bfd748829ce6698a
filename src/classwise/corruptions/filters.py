"""Blurs, zooms and warps of whole batches, at the edges as the corruptions' scripts have them.

A Gaussian blur is two products with matrices that have the edges in them; a disk is multiplied in
the frequency domain; a motion is a sum of shifted images.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

Edge: TypeAlias = Literal["nearest", "reflect", "mirror"]


def beyond(place: Tensor, size: int, edge: Edge) -> Tensor:
    """The pixel that stands for a place outside the image.

    `nearest`: a a|a b c|c c, `reflect`: b a|a b c|c b, `mirror`: c b|a b c|b a.

    >>> [beyond(torch.tensor([-2, -1, 1, 3]), 3, e).tolist() for e in ("nearest", "reflect")]
    [[0, 0, 1, 2], [1, 0, 1, 2]]
    >>> beyond(torch.tensor([-2, -1, 1, 3]), 3, "mirror").tolist()
    [2, 1, 1, 1]
    """
    if edge == "nearest":
        return place.clamp(0, size - 1)
    if edge == "reflect":
        place = place % (2 * size)
        return torch.minimum(place, 2 * size - 1 - place)
    place = place % max(1, 2 * size - 2)
    return torch.minimum(place, (2 * size - 2 - place) % max(1, 2 * size - 2))


@lru_cache(maxsize=64)
def _gaussian_matrix(size: int, sigma: float, truncate: float, edge: Edge) -> Tensor:
    radius = int(truncate * sigma + 0.5)
    if not radius:
        return torch.eye(size)
    offset = torch.arange(-radius, radius + 1)
    weight = (-0.5 * (offset.double() / sigma).square()).exp()
    column = beyond(torch.arange(size)[:, None] + offset, size, edge)
    found = torch.zeros(size, size, dtype=torch.float64)
    found.scatter_add_(1, column, (weight / weight.sum()).expand(size, -1))
    return found.float()


def gaussian(images: Tensor, sigma: float, truncate: float = 4.0, edge: Edge = "nearest") -> Tensor:
    """Blur over both sides; the kernel ends at `truncate` deviations."""
    rows, columns = (
        _gaussian_matrix(size, float(sigma), truncate, edge).to(images.device)
        for size in images.shape[-2:]
    )
    return rows @ (images @ columns.T)


@lru_cache(maxsize=64)
def disk(radius: float, alias_blur: float) -> Tensor:
    """A disk of total 1 whose rim is softened, as the scripts draw it."""
    reach, side = (8, 3) if radius <= 8 else (int(radius), 5)
    at = torch.arange(-reach, reach + 1, dtype=torch.float64)
    flat = (at[:, None].square() + at.square() <= radius**2).double()
    flat /= flat.sum()
    tap = torch.arange(side) - side // 2
    weight = (-0.5 * (tap.double() / alias_blur).square()).exp()
    weight /= weight.sum()
    place = beyond(torch.arange(len(at))[:, None] + tap, len(at), "mirror")
    soft = torch.zeros(len(at), len(at), dtype=torch.float64)
    soft.scatter_add_(1, place, weight.expand(len(at), -1))
    kernel = soft @ flat @ soft.T
    used = int((kernel.amax(0) > 0).nonzero().min())  # no more of the square than has weight
    kept = kernel[used : len(at) - used, used : len(at) - used]
    return kept.float()


def convolve(images: Tensor, kernel: Tensor) -> Tensor:
    """Multiply with a symmetric odd kernel around every pixel; edges are mirrored."""
    reach = len(kernel) // 2
    height, width = images.shape[-2:]
    at = [
        beyond(torch.arange(-reach, size + reach, device=images.device), size, "mirror")
        for size in (height, width)
    ]
    wide = images[..., at[0], :][..., at[1]]
    if reach <= 2:
        flat = wide.flatten(0, 1)[:, None]
        near = F.conv2d(flat, kernel.to(images)[None, None])
        return near.view(*images.shape[:2], height, width)
    size = (_quick_length(height + 2 * reach), _quick_length(width + 2 * reach))
    product = torch.fft.rfft2(wide, s=size) * torch.fft.rfft2(kernel.to(images), s=size)
    found: Tensor = torch.fft.irfft2(product, s=size)
    return found[..., 2 * reach : 2 * reach + height, 2 * reach : 2 * reach + width]


@lru_cache(maxsize=256)
def _quick_length(length: int) -> int:
    """The next length whose prime factors are 2, 3 and 5, which a Fourier transform likes."""
    while True:
        rest = length
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return length
        length += 1


def motion(images: Tensor, radius: int, sigma: float, degrees: Tensor) -> Tensor:
    """Smear each image along its own direction, with the weights of half a Gaussian."""
    height, width = images.shape[-2:]
    count = 2 * radius + 1
    weight = (-0.5 * (torch.arange(count).double() / sigma).square()).exp()
    weight /= weight.sum()
    along = degrees.double().deg2rad()[:, None]
    step = torch.arange(count, device=images.device)
    down, right = (  # how far each tap lies from the pixel
        (step * way - 0.5).ceil().long() for way in (along.sin(), along.cos())
    )
    # whoever leaves the image takes no further tap with him
    inside = ((down.abs() < height) & (right.abs() < width)).long().cummin(dim=1).values
    reach = count - 1
    wide = F.pad(images, (reach, reach, reach, reach), mode="replicate")
    whole = width + 2 * reach
    flat = wide.flatten(2)
    places = torch.arange(height, device=images.device)[:, None] * whole
    base = (places + torch.arange(width, device=images.device)).flatten() + reach * whole + reach
    found = torch.zeros_like(images).flatten(2)
    for tap in range(count):
        at = base + (down[:, tap] * whole + right[:, tap])[:, None]
        share = (weight[tap] * inside[:, tap]).to(images)[:, None, None]
        found.addcmul_(flat.gather(2, at[:, None].expand_as(found)), share)
    return found.view_as(images)


def clipped_zoom(images: Tensor, zoom: float) -> Tensor:
    """The middle of each image, enlarged; it may be a pixel larger than the image was."""
    height, width = images.shape[-2:]
    cut = [math.ceil(size / zoom) for size in (height, width)]
    top, left = ((size - part) // 2 for size, part in zip((height, width), cut, strict=True))
    middle = images[..., top : top + cut[0], left : left + cut[1]]
    size = [round(part * zoom) for part in cut]
    return F.interpolate(middle, size=size, mode="bilinear", align_corners=True)


def trimmed(images: Tensor, height: int, width: int) -> Tensor:
    """As much of the middle as an image of this size has."""
    top, left = (images.shape[-2] - height) // 2, (images.shape[-1] - width) // 2
    return images[..., top : top + height, left : left + width]


def warp(images: Tensor, rows: Tensor, columns: Tensor, edge: Edge) -> Tensor:
    """Each image at other places (n×h×w rows and columns), between pixels by their distances."""
    height, width = images.shape[-2:]
    corners = edge == "mirror"
    spread = [(size - 1) if corners else size for size in (width, height)]
    shift = 0.0 if corners else 0.5
    grid = torch.stack(
        [
            (place + shift) * (2 / max(1, size)) - 1
            for place, size in zip((columns, rows), spread, strict=True)
        ],
        dim=-1,
    )
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=corners)
