"""Noise of a sensor: Gaussian, shot, impulse and speckle."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from classwise.corruptions.chance import Chance

_BINS = 256  # of the chance, to begin a look-up near its end


def gaussian_noise(images: Tensor, scale: float, chance: Chance) -> Tensor:
    """The same noise on dark and on bright pixels."""
    return chance.normal("noise", images.shape[1:]).mul_(scale).add_(images)


def speckle_noise(images: Tensor, scale: float, chance: Chance) -> Tensor:
    """Noise in proportion to the pixel."""
    return chance.normal("noise", images.shape[1:]).mul_(scale).add_(1).mul_(images)


def impulse_noise(images: Tensor, amount: float, chance: Chance) -> Tensor:
    """Some values are 1, as many are 0."""
    drawn = chance.uniform("noise", images.shape[1:])
    black = images.masked_fill(drawn < amount, 0.0)
    return black.masked_fill_(drawn < amount / 2, 1.0)


def shot_noise(images: Tensor, photons: float, chance: Chance) -> Tensor:
    """As many photons as a Poisson law gives a pixel, out of `photons` for white."""
    levels = (255 * images).round_().long()
    drawn = chance.uniform("noise", images.shape[1:])
    return _quantile(levels, drawn, float(photons)).to(images).div_(photons)


def _quantile(levels: Tensor, drawn: Tensor, photons: float) -> Tensor:
    """The least number of photons whose cumulative chance exceeds what was drawn."""
    cumulative, first = (table.to(levels.device) for table in _tables(photons))
    most = cumulative.shape[1]
    bins = (drawn * _BINS).long().clamp_(max=_BINS - 1)
    drawn = drawn + 2.0**-25  # the middle of what a draw stands for: none of them is chance 0
    found = first.flatten()[levels * _BINS + bins]
    flat, row = cumulative.flatten(), levels * most
    short = (drawn >= flat[row + found]).nonzero(as_tuple=True)
    while len(short[0]):  # most are right at once, few have more than a step to go
        found[short] += 1
        still = drawn[short] >= flat[row[short] + found[short]]
        short = tuple(part[still] for part in short)
    return found


@lru_cache(maxsize=16)
def _tables(photons: float) -> tuple[Tensor, Tensor]:
    """Cumulative chances of every count for the 256 levels, and where each bin begins."""
    rate = (torch.arange(256, dtype=torch.float64) * (photons / 255))[:, None]
    most = math.ceil(photons + 12 * math.sqrt(photons) + 12)
    count = torch.arange(most, dtype=torch.float64)
    chances = (torch.special.xlogy(count, rate) - rate - torch.lgamma(count + 1)).exp()
    cumulative = chances.cumsum(1)
    cumulative[:, -1] = 2.0  # nothing that is drawn lies beyond
    start = torch.arange(_BINS, dtype=torch.float64).expand(256, -1).contiguous() / _BINS
    return cumulative.float(), torch.searchsorted(cumulative, start, right=True)
