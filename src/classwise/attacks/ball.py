"""The sets of images an attacker may reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from classwise.errors import ClasswiseError, unknown
from classwise.spelling import parse_eps
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


@dataclass(frozen=True, slots=True)
class L2:
    """All pixels together may move by at most the radius, as Euclid measures it."""

    name: str = "L2"

    def spread(self, noise: Tensor, radius: PerSample) -> Tensor:
        """Uniform in the cube around, pulled back into the ball."""
        return self._shorten((2 * noise - 1) * per_image(radius), radius)

    def uphill(self, slope: Tensor, step: PerSample) -> Tensor:
        """Move along the gradient by the step; nowhere where the gradient is zero."""
        return slope * per_image(step / lengths(slope).clamp(min=1e-12))

    def project(self, moved: Images, images: Images, radius: PerSample) -> Images:
        """Shorten to the radius first, then clip to [0, 1], which only shortens further."""
        return (images + self._shorten(moved - images, radius)).clamp_(0, 1)

    def _shorten(self, offset: Tensor, radius: PerSample) -> Tensor:
        return offset * per_image((radius / lengths(offset).clamp(min=1e-12)).clamp(max=1))


LINF, L2_BALL = Linf(), L2()
_SPELLINGS: dict[str, Ball] = {"linf": LINF, "inf": LINF, "l2": L2_BALL, "2": L2_BALL}


def parse_norm(norm: str | float) -> Ball:
    """Read a norm as people write it: `Linf`, `inf`, `numpy.inf`, `L2` or 2.

    >>> parse_norm(float("inf")).name
    'Linf'
    """
    text = str(norm).removesuffix(".0")
    if text.lower() not in _SPELLINGS:
        raise unknown("norm", text, {ball.name for ball in _SPELLINGS.values()})
    return _SPELLINGS[text.lower()]


def radii(eps: Any, ball: Ball, count: int) -> PerSample:
    """Read one radius for all images, or one for each, as float64 on the processor.

    >>> radii("1/4", LINF, 2).tolist(), radii([0.1, 0.2], LINF, 2).tolist()
    ([0.25, 0.25], [0.1, 0.2])
    """
    if isinstance(eps, str) or np.ndim(eps) == 0:
        return torch.full((count,), parse_eps(eps, ball.name), dtype=torch.float64)
    given = torch.as_tensor(eps, dtype=torch.float64).cpu()
    if given.shape != (count,) or not bool(((given >= 0) & torch.isfinite(given)).all()):
        raise ClasswiseError(
            f"eps has shape {tuple(given.shape)} for {count} images; give one radius, or one per "
            "image, each 0 or more"
        )
    return given


def lengths(offset: Tensor) -> PerSample:
    """Return the Euclidean length of each sample's offset."""
    return offset.flatten(1).square().sum(1).sqrt()


def per_image(values: PerSample) -> Tensor:
    """Shape n numbers so that they broadcast over n images."""
    return values.view(-1, 1, 1, 1)
