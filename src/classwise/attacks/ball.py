"""The sets of images an attacker may reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from classwise.errors import unknown
from classwise.types import Images, PerSample


class Ball(Protocol):
    """A norm, as the three things an attack needs of it."""

    @property
    def name(self) -> str:
        """Its customary name."""

    def spread(self, noise: Tensor, radius: PerSample) -> Tensor:
        """Turn uniform [0, 1) numbers into a random offset inside the ball."""

    def uphill(self, slope: Tensor, step: PerSample) -> Tensor:
        """Return the steepest offset of length `step`."""

    def project(self, moved: Images, images: Images, radius: PerSample) -> Images:
        """Return the nearest point within `radius` of `images` and in [0, 1]."""


@dataclass(frozen=True, slots=True)
class Linf:
    """Every pixel may move by at most the radius."""

    name: str = "Linf"

    def spread(self, noise: Tensor, radius: PerSample) -> Tensor:
        """Uniform in the whole cube."""
        return (2 * noise - 1) * per_image(radius)

    def uphill(self, slope: Tensor, step: PerSample) -> Tensor:
        """Move each pixel by the step, in the direction of its sign."""
        return slope.sign() * per_image(step)

    def project(self, moved: Images, images: Images, radius: PerSample) -> Images:
        """Clip to the cube first, then to [0, 1]."""
        reach = per_image(radius)
        inside = torch.minimum(torch.maximum(moved, images - reach), images + reach)
        return inside.clamp_(0, 1)


LINF = Linf()
_SPELLINGS: dict[str, Ball] = {"linf": LINF, "inf": LINF}


def parse_norm(norm: str | float) -> Ball:
    """Read a norm as people write it: `Linf`, `inf` or `numpy.inf`.

    >>> parse_norm(float("inf")).name
    'Linf'
    """
    text = str(norm)
    if text.lower() not in _SPELLINGS:
        raise unknown("norm", text, {ball.name for ball in _SPELLINGS.values()})
    return _SPELLINGS[text.lower()]


def per_image(values: PerSample) -> Tensor:
    """Shape n numbers so that they broadcast over n images."""
    return values.view(-1, 1, 1, 1)
