"""Image transforms of the user's own, as conditions: `mypackage:Blur(radius=2)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from classwise.attacks.borrowed import borrowed_generators
from classwise.attacks.condition import Traits
from classwise.content import content_of
from classwise.data.view import View
from classwise.errors import ClasswiseError
from classwise.spelling import is_plain
from classwise.types import Batch

_NUMBERED = ("index", "seed")  # what a transform that draws random numbers asks for besides


@dataclass(frozen=True)
class OwnTransform:
    """A function from images in [0, 1] to as many images in [0, 1].

    It is called as `transform(images)`, or, where it draws random numbers, as
    `transform(images, index, seed)`: what it makes of an image must depend on the image, its number
    and the seed alone, never on its company, or the verdict would depend on the batch.
    """

    name: str
    transform: Callable[..., Any]

    @classmethod
    def of(cls, transform: Callable[..., Any], name: str = "") -> OwnTransform:
        """Know a transform by its class and settings; `name` is what the user called it."""
        return cls(name or spelled(transform), transform)

    @cached_property
    def identity(self) -> str:
        """Changes with its settings and with its code."""
        return content_of(self.transform).hex()[:16]

    @property
    def traits(self) -> Traits:
        """Its class; how strong it is, only it knows: `severity`, if it says so."""
        severity = getattr(self.transform, "severity", 0.0)
        number = isinstance(severity, int | float) and not isinstance(severity, bool)
        family, _, options = self.name.partition("(")
        return Traits(family, float(severity) if number else 0.0, options.removesuffix(")"))

    def check(self, data: View) -> None:
        """What it is for, only its writer knows; its images are checked."""

    def images(self, batch: Batch, seed: int) -> Batch:
        """Transformed images, checked."""
        moved = self._moved(batch, seed)
        few = min(2, len(batch))
        if few > 1:  # an image's transform must not depend on who is beside it
            for row in range(few):
                one = Batch(*(part[row : row + 1] for part in _parts(batch)))
                alone = self._moved(one, seed)
                if not torch.allclose(alone[0], moved[row], atol=1e-4):
                    raise ClasswiseError(
                        f"{self.name} makes something else of an image alone than in a batch; if "
                        "it draws random numbers, let it take (images, index, seed) and draw by "
                        "the images' numbers (docs/conditions.md)"
                    )
        return replace(batch, images=moved)

    def _moved(self, batch: Batch, seed: int) -> Tensor:
        given = {"index": batch.index, "seed": seed} if _is_numbered(self.transform) else {}
        with borrowed_generators(seed):
            made = self.transform(batch.images.contiguous(), **given)
        shape = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
        if shape != tuple(batch.images.shape):
            raise ClasswiseError(
                f"{self.name} returned {shape} for images of shape {tuple(batch.images.shape)}; "
                "it must return a tensor of as many images of the same size"
            )
        moved: Tensor = made.detach().to(batch.images)
        if not bool(((moved >= -1e-6) & (moved <= 1 + 1e-6)).all()):  # also where there is NaN
            raise ClasswiseError(
                f"{self.name} returned values outside [0, 1], or NaN; clip its images to [0, 1]"
            )
        return moved.clamp(0, 1)


def is_transform(thing: Any) -> bool:
    """Whether something is called with images alone, or with images, their numbers and a seed.

    >>> is_transform(lambda images: images), is_transform(lambda images, labels: images)
    (True, False)
    """
    if isinstance(thing, type) or not callable(thing) or hasattr(thing, "generate"):
        return False
    try:
        taken = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [p.name for p in taken if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    return len(needed) == 1 or tuple(needed[1:]) == _NUMBERED


def spelled(transform: Any) -> str:
    """`module:Class(option=value)` of an object: the settings it keeps that are not the default."""
    if inspect.isfunction(transform):
        return f"{transform.__module__}:{transform.__qualname__}"
    kind = type(transform)
    name = f"{kind.__module__}:{kind.__qualname__}"
    kept = {
        option.name: vars(transform)[option.name]
        for option in inspect.signature(kind).parameters.values()
        if option.name in vars(transform)
        and is_plain(vars(transform)[option.name])
        and vars(transform)[option.name] != option.default
    }
    said = ",".join(f"{key}={value}" for key, value in kept.items()).replace(" ", "")
    return f"{name}({said})" if said else name


def _is_numbered(transform: Callable[..., Any]) -> bool:
    return tuple(inspect.signature(transform).parameters)[1:3] == _NUMBERED


def _parts(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    return batch.images, batch.labels, batch.index
