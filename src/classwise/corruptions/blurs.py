"""Blurs of a lens: Gaussian, frosted glass, out of focus, in motion, zooming."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from classwise.corruptions.chance import Chance
from classwise.corruptions.filters import clipped_zoom, convolve, disk, gaussian, motion, trimmed

Pair = tuple[float, float]


def gaussian_blur(images: Tensor, sigma: float, chance: Chance) -> Tensor:  # noqa: ARG001
    """A soft image."""
    return gaussian(images, sigma)


def defocus_blur(images: Tensor, level: Pair, chance: Chance) -> Tensor:  # noqa: ARG001
    """Every point becomes a disk."""
    return convolve(images, disk(*level))


def motion_blur(images: Tensor, level: tuple[int, float], chance: Chance) -> Tensor:
    """The camera moved, at most 45° from the horizontal."""
    degrees = chance.uniform("angle", ()) * 90 - 45
    return motion(images, level[0], level[1], degrees)


def zoom_blur(images: Tensor, level: tuple[float, float, float], chance: Chance) -> Tensor:  # noqa: ARG001
    """The mean of the image and of ever closer views of it."""
    views = np.arange(*level)
    total = images.clone()
    for zoom in views.tolist():
        total += trimmed(clipped_zoom(images, zoom), *images.shape[-2:])
    return total.div_(len(views) + 1)


def glass_blur(images: Tensor, level: tuple[float, int, int], chance: Chance) -> Tensor:
    """Pixels take the place of near ones, between two blurs.

    The scripts mean to swap pixels; what they do with colours is to copy one over the other, from
    the last pixel to the first. So do we.
    """
    sigma, reach, turns = level
    seen = (255 * gaussian(images, sigma) + 1e-3).floor_().div_(255)
    height, width = images.shape[-2:]
    if min(height, width) > 2 * reach:
        for turn in range(turns):
            source = _copied_from(height, width, reach, chance, turn)
            flat = seen.flatten(2)
            seen = flat.gather(2, source[:, None].expand_as(flat)).view_as(seen)
    return gaussian(seen, sigma)


def _copied_from(height: int, width: int, reach: int, chance: Chance, turn: int) -> Tensor:
    """Where the pixel that ends at each place has come from.

    Pixels are visited from the last to the first. A pixel copies what it finds at its target: if
    that was visited before, then what was copied there. Such chains are followed by doubling.
    """
    rows, columns = height - 2 * reach, width - 2 * reach
    drawn = (chance.uniform(f"glass {turn}", (rows, columns, 2)) * (2 * reach)).long() - reach
    right, down = drawn.unbind(-1)
    place = torch.arange(height * width, device=drawn.device).view(height, width)
    inside = slice(reach + 1, height - reach + 1), slice(reach + 1, width - reach + 1)
    source = place.expand(len(drawn), -1, -1).clone()
    source[:, inside[0], inside[1]] += down * width + right
    visited = torch.zeros_like(place, dtype=torch.bool)
    visited[inside] = True
    source, place = source.flatten(1), place.flatten()
    chained = (source > place) & visited.flatten()[source]
    while chained.any():
        source, chained = (
            torch.where(chained, source.gather(1, source), source),
            chained & chained.gather(1, source),
        )
    return source
