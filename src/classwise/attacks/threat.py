"""What an adversary may do to an image: a ball, and how far it reaches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from classwise.attacks.ball import Ball, parse_norm
from classwise.errors import ClasswiseError
from classwise.spelling import parse_eps
from classwise.types import Labels, PerSample


@dataclass(frozen=True, eq=False)
class PerNumber:
    """A radius for each sample number."""

    index: Tensor  # in rising order
    values: Tensor  # float64

    def at(self, index: Labels) -> PerSample:
        """The radii of some samples."""
        place = torch.searchsorted(self.index, index.cpu().contiguous())
        return self.values[place]


@dataclass(frozen=True, eq=False)
class Threat:
    """A norm's ball with one radius for all samples, or one for each.

    >>> Threat.of("1/4").at(torch.tensor([5, 7])).tolist()
    [0.25, 0.25]
    """

    ball: Ball
    radius: float | PerNumber

    @classmethod
    def of(cls, eps: Any, norm: str | float | Ball = "Linf", index: Labels | None = None) -> Threat:
        """Read what a user wrote: one radius, or one for each of the samples in `index`."""
        ball = parse_norm(norm) if isinstance(norm, str | int | float) else norm
        if isinstance(eps, str) or np.ndim(eps) == 0:
            return cls(ball, parse_eps(eps, ball.too_wide))
        given = torch.as_tensor(eps, dtype=torch.float64).cpu()
        count = 0 if index is None else len(index)
        if given.shape != (count,) or not bool(((given >= 0) & torch.isfinite(given)).all()):
            raise ClasswiseError(
                f"eps has shape {tuple(given.shape)} for {count} images; give one radius, or one "
                "per image, each 0 or more"
            )
        if count and float(given.max()) == float(given.min()):
            return cls(ball, float(given[0]))  # one for all, however it was written
        order = torch.argsort(index.cpu(), stable=True)  # type: ignore[union-attr]
        return cls(ball, PerNumber(index.cpu()[order], given[order]))  # type: ignore[union-attr]

    def at(self, index: Labels) -> PerSample:
        """The radius of each of these samples, as float64 on the processor."""
        if isinstance(self.radius, PerNumber):
            return self.radius.at(index)
        return torch.full((len(index),), self.radius, dtype=torch.float64)

    def like(self, images: Tensor, index: Labels) -> PerSample:
        """The radius of each of these images, in their precision and on their device."""
        return self.at(index).to(device=images.device, dtype=images.dtype)

    @property
    def stated(self) -> float | list[float]:
        """What the name of a record says: one number, or all of them."""
        if isinstance(self.radius, PerNumber):
            every: list[float] = self.radius.values.tolist()
            return every
        return self.radius

    @property
    def widest(self) -> float:
        """The largest radius."""
        stated = self.stated
        return max(stated) if isinstance(stated, list) else stated
