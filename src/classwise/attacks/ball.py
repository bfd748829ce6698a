"""The sets of images an attacker may reach."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from classwise.attacks.projection import toward_plane
from classwise.errors import unknown
from classwise.types import Images, PerSample


@dataclass(frozen=True, slots=True)
class Room:
    """Where the attacked images of a batch may be."""

    low: Images
    high: Images  # as the ball's `bounds` gave the two
    images: Images
    radius: PerSample

    def rows(self, keep: Tensor) -> Room:
        """The room of some of them."""
        return Room(self.low[keep], self.high[keep], self.images[keep], self.radius[keep])


class Ball(Protocol):
    """A norm, as all that an attack or an audit needs of it: nobody else asks for its name."""

    @property
    def name(self) -> str:
        """Its customary name, for people and for records."""

    @property
    def too_wide(self) -> float:
        """Radii from here on are slips of the pen: images live in [0, 1]."""

    @property
    def far(self) -> float:
        """A radius at which few networks stand."""

    def spread(self, noise: Tensor, radius: PerSample) -> Tensor:
        """Turn uniform [0, 1) numbers into a random offset inside the ball."""

    def uphill(self, slope: Tensor, step: PerSample) -> Tensor:
        """Return the steepest offset of length `step`."""

    def project(self, moved: Images, images: Images, radius: PerSample) -> Images:
        """Return the nearest point within `radius` of `images` and in [0, 1]."""

    def shorten(self, offset: Tensor, radius: PerSample) -> Tensor:
        """Return the nearest offset of the ball, wherever the image is."""

    def bounds(self, images: Images, radius: PerSample) -> tuple[Images, Images]:
        """Lowest and highest images of each sample, worked out once for all its steps."""

    def into(self, moved: Images, room: Room) -> Images:
        """What `project` returns, with the help of `bounds`; `moved` is used up."""

    def distance(self, offset: Tensor) -> PerSample:
        """Return the length of each sample's offset."""

    def dual(self, slope: Tensor) -> PerSample:
        """How fast a height with this slope can rise per length of offset."""

    def toward_plane(self, images: Images, normal: Tensor, rise: PerSample) -> Tensor:
        """Return the shortest offset to {⟨normal, δ⟩ = rise} that keeps the image in [0, 1]."""

    def all_grey(self, images: Images) -> float:
        """A radius whose ball holds the plain grey image, whatever the image was."""


@dataclass(frozen=True, slots=True)
class Linf:
    """Every pixel may move by at most the radius."""

    name: str = "Linf"
    too_wide: float = 1.0
    far: float = 16 / 255 - 1e-9

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

    def shorten(self, offset: Tensor, radius: PerSample) -> Tensor:
        """Clip to the cube."""
        reach = per_image(radius)
        return torch.minimum(torch.maximum(offset, -reach), reach)

    def bounds(self, images: Images, radius: PerSample) -> tuple[Images, Images]:
        """Cube and [0, 1] in one."""
        reach = per_image(radius)
        return (images - reach).clamp_(min=0), (images + reach).clamp_(max=1)

    def into(self, moved: Images, room: Room) -> Images:
        """Clip to the bounds."""
        return moved.clamp_(room.low, room.high)

    def distance(self, offset: Tensor) -> PerSample:
        """The pixel that moved most."""
        return offset.abs().amax((1, 2, 3))

    def dual(self, slope: Tensor) -> PerSample:
        """‖∇‖₁."""
        return slope.abs().sum((1, 2, 3))

    def toward_plane(self, images: Images, normal: Tensor, rise: PerSample) -> Tensor:
        """Every pixel moves alike, as far as it can."""
        return toward_plane(images, normal, rise, steep_first=False)

    def all_grey(self, images: Images) -> float:  # noqa: ARG002
        """Half of [0, 1]."""
        return 0.5


@dataclass(frozen=True, slots=True)
class L2:
    """All pixels together may move by at most the radius, as Euclid measures it."""

    name: str = "L2"
    too_wide: float = float("inf")  # the cube's diagonal is √d long
    far: float = 1.0

    def spread(self, noise: Tensor, radius: PerSample) -> Tensor:
        """Uniform in the cube around, pulled back into the ball."""
        return self.shorten((2 * noise - 1) * per_image(radius), radius)

    def uphill(self, slope: Tensor, step: PerSample) -> Tensor:
        """Move along the gradient by the step; nowhere where the gradient is zero."""
        return slope * per_image(step / lengths(slope).clamp(min=1e-12))

    def project(self, moved: Images, images: Images, radius: PerSample) -> Images:
        """Shorten to the radius first, then clip to [0, 1], which only shortens further."""
        return (images + self.shorten(moved - images, radius)).clamp_(0, 1)

    def bounds(self, images: Images, radius: PerSample) -> tuple[Images, Images]:
        """[0, 1] alone."""
        reach = per_image(radius).to(images.dtype)
        return torch.zeros_like(reach), torch.ones_like(reach)

    def into(self, moved: Images, room: Room) -> Images:
        """Project."""
        return self.project(moved, room.images, room.radius)

    def distance(self, offset: Tensor) -> PerSample:
        """Euclid's length."""
        return offset.square().sum((1, 2, 3)).sqrt()

    def dual(self, slope: Tensor) -> PerSample:
        """‖∇‖₂."""
        return slope.square().sum((1, 2, 3)).sqrt()

    def toward_plane(self, images: Images, normal: Tensor, rise: PerSample) -> Tensor:
        """Steep pixels move more."""
        return toward_plane(images, normal, rise, steep_first=True)

    def all_grey(self, images: Images) -> float:
        """Half of the cube's diagonal."""
        return 0.5 * math.sqrt(images[0].numel())

    def shorten(self, offset: Tensor, radius: PerSample) -> Tensor:
        """Along the offset itself, which never gets longer."""
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


def lengths(offset: Tensor) -> PerSample:
    """Return the Euclidean length of each sample's offset."""
    return offset.flatten(1).square().sum(1).sqrt()


def per_image(values: PerSample) -> Tensor:
    """Shape n numbers so that they broadcast over n images."""
    return values.view(-1, 1, 1, 1)
