"""What a model wants in front of it: size, crop, order of channels, normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from classwise.errors import ClasswiseError, cut, unknown
from classwise.limits import LARGEST_OPTION

_KNOWN = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "mnist": ((0.1307,), (0.3081,)),
    "half": ((0.5,), (0.5,)),  # to [−1, 1]
    "none": ((0.0,), (1.0,)),  # said in so many words, so that it is no oversight
}
NONE = "none"  # not even what a configuration asks for
_WAYS = ("bilinear", "bicubic")  # to resize; what lies between pixels is averaged, as in Pillow
_PILLOW = {2: "bilinear", 3: "bicubic"}  # its numbers, in configurations


@dataclass(frozen=True, slots=True)
class Normalisation:
    """(x − mean)/deviation per channel, of images in [0, 1]."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, given: Any) -> Normalisation:
        """Read `cifar10`, `imagenet`, or a pair of means and deviations.

        >>> Normalisation.of("imagenet").mean
        (0.485, 0.456, 0.406)
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, str):
            if given not in _KNOWN:
                known = [*_KNOWN, "a pair of means and deviations"]
                raise unknown("normalisation", given, known)
            return cls(*_KNOWN[given])
        try:
            mean, deviation = (tuple(float(one) for one in np.atleast_1d(part)) for part in given)
        except (TypeError, ValueError):
            raise ClasswiseError(
                f"normalisation {given!r}: give {', '.join(_KNOWN)}, or a pair of means and "
                "deviations, one of each per channel"
            ) from None
        if len(mean) != len(deviation) or not all(one > 0 for one in deviation):
            raise ClasswiseError(
                f"normalisation by means {mean} and deviations {deviation}: give one of each per "
                "channel, deviations above 0"
            )
        return cls(mean, deviation)

    def others(self, channels: int) -> dict[str, Normalisation]:
        """Usual ones for so many channels that are not this one, by their names."""
        usual = {name: Normalisation(*numbers) for name, numbers in _KNOWN.items() if name != NONE}
        return {name: one for name, one in usual.items() if one != self and one.fits(channels)}

    def fits(self, channels: int) -> bool:
        """Whether it is for so many channels."""
        return len(self.mean) in (1, channels)

    def __str__(self) -> str:
        numbers = (" ".join(f"{one:g}" for one in part) for part in (self.mean, self.deviation))
        return "mean {}, deviation {}".format(*numbers)


@dataclass(frozen=True, slots=True)
class Resizing:
    """To a height and width, or, with one side, the shorter one to that."""

    sides: tuple[int, ...]
    way: str = "bilinear"

    @classmethod
    def of(cls, given: Any) -> Resizing:
        """Read 256, `224x224`, `256:bicubic`, or a pair.

        >>> Resizing.of("256:bicubic")
        Resizing(sides=(256,), way='bicubic')
        """
        if isinstance(given, cls):
            return given
        words, _, way = str(given).partition(":") if isinstance(given, str) else (given, "", "")
        if way and way not in _WAYS:
            raise unknown("way to resize", way, _WAYS)
        return cls(_sides("resize", words), way or "bilinear")

    def to(self, height: int, width: int) -> tuple[int, int]:
        """What a height and width become.

        >>> Resizing((256,)).to(300, 400)
        (256, 341)
        """
        if len(self.sides) == 2:
            return self.sides[0], self.sides[1]
        (side,) = self.sides
        short, long = min(height, width), max(height, width)
        other = int(side * long / short)
        return (side, other) if height <= width else (other, side)

    def __str__(self) -> str:
        return f"{_spelled(self.sides)} ({self.way})"


def _sides(option: str, given: Any) -> tuple[int, ...]:
    """One side, or height and width."""
    parts = given.lower().split("x") if isinstance(given, str) else np.atleast_1d(given).tolist()
    try:
        found = tuple(int(part) for part in parts)
        whole = all(float(part) == side for part, side in zip(parts, found, strict=True))
    except (TypeError, ValueError):
        found, whole = (), False
    if not whole or len(found) not in (1, 2) or not all(1 <= n <= LARGEST_OPTION for n in found):
        raise ClasswiseError(
            f"{option} {given!r}: give one side or HEIGHTxWIDTH in pixels, such as 224 or 224x224, "
            f"each from 1 to {LARGEST_OPTION}"
        )
    return found


def _spelled(sides: tuple[int, ...]) -> str:
    return "×".join(map(str, sides))


@dataclass(frozen=True, slots=True)
class Preparation:
    """What becomes of an image in [0, 1] before a model sees it, in this order.

    Attacks move the pixels that the data have, and a radius is measured on them; gradients go
    through all of this.
    """

    resize: Resizing | None = None
    crop: tuple[int, int] | None = None  # height and width, from the middle
    normalisation: Normalisation | None = None  # of red, green, blue
    channels: str = ""  # rgb or bgr, which also make three channels of one
    source: str = ""  # who says so, if not the user

    @classmethod
    def of(
        cls,
        normalise: Any = None,
        resize: Any = None,
        crop: Any = None,
        channels: str | None = None,
        configured: Preparation | None = None,
    ) -> Preparation:
        """Read the user's words; what they do not mention is as a configuration says, if any.

        Resizing and cropping go together: who mentions one decides both. `none` is nothing.
        """
        found = configured or cls()
        if normalise is not None:
            off = isinstance(normalise, str) and normalise == NONE
            found = replace(found, normalisation=None if off else Normalisation.of(normalise))
        if resize is not None or crop is not None:
            sides = None if crop in (None, NONE) else _sides("crop", crop)
            off = resize is None or (isinstance(resize, str) and resize == NONE)
            found = replace(
                found,
                resize=None if off else Resizing.of(resize),
                crop=None if sides is None else (sides[0], sides[-1]),
            )
        if channels is not None:
            if channels not in ("rgb", "bgr"):
                raise unknown("order of channels", channels, ("rgb", "bgr"))
            found = replace(found, channels=channels)
        return found

    def __bool__(self) -> bool:
        return bool(self.resize or self.crop or self.normalisation or self.channels)

    def __str__(self) -> str:
        parts = (
            self.resize and f"resized to {self.resize}",
            self.crop and f"cropped to {_spelled(self.crop)}",
            self.normalisation and f"normalised by {self.normalisation}",
            self.channels and f"given as {self.channels.upper()}",
        )
        said = ", ".join(part for part in parts if part)
        return f"{said}, as {self.source} says" if said and self.source else said


def from_config(
    said: Mapping[str, Any], height: int, width: int, source: str = "its configuration"
) -> Preparation:
    """What timm's `pretrained_cfg` or the image processor of a transformers model asks for.

    Images that already have the size that the model takes are neither resized nor cropped: who
    prepared them has done so.

    >>> str(from_config({"mean": (0.5,), "std": (0.5,), "input_size": (3, 8, 8)}, 8, 8))
    'normalised by mean 0.5, deviation 0.5, as its configuration says'
    """
    mean, deviation = (said.get(one) or said.get(f"image_{one}") for one in ("mean", "std"))
    normalised = said.get("do_normalize", True) and mean is not None and deviation is not None
    how = Normalisation.of((mean, deviation)) if normalised else None
    if how is not None and said.get("do_rescale") is False:  # it takes grey levels of 0 … 255
        how = Normalisation(*(tuple(n / 255 for n in part) for part in (how.mean, how.deviation)))
    resize, crop = _timm_sizes(said) if "input_size" in said else _processor_sizes(said)
    takes = crop or (resize.to(height, width) if resize else None)
    if takes == (height, width):
        resize = crop = None
    return Preparation(resize, crop, how, source=source)


def _way(said: Any) -> str:
    """The nearest of our ways to resize to what a configuration names."""
    name = _PILLOW.get(said, "bilinear") if isinstance(said, int) else str(said).lower()
    return name if name in _WAYS else "bilinear"


def _timm_sizes(said: Mapping[str, Any]) -> tuple[Resizing | None, tuple[int, int] | None]:
    """A crop of `input_size` out of an image that is larger by `crop_pct`."""
    _, height, width = (int(one) for one in said["input_size"])
    share, way = float(said.get("crop_pct") or 0.875), _way(said.get("interpolation", "bilinear"))
    if said.get("crop_mode") == "squash":
        return Resizing((int(height / share), int(width / share)), way), (height, width)
    return Resizing((int(min(height, width) / share),), way), (height, width)


def _processor_sizes(said: Mapping[str, Any]) -> tuple[Resizing | None, tuple[int, int] | None]:
    """`size` and `crop_size` of an image processor; `shortest_edge` keeps the proportions."""
    resize = crop = None
    way, size = _way(said.get("resample", 2)), said.get("size")
    if said.get("do_resize", True) and size is not None:
        sides = _edges(size)
        if len(sides) == 1 and "crop_pct" in said and said["crop_pct"]:  # ConvNeXT's
            crop = (sides[0], sides[0])
            sides = (int(sides[0] / float(said["crop_pct"])),)
        resize = Resizing(sides, way)
    if said.get("do_center_crop") and said.get("crop_size") is not None:
        edges = _edges(said["crop_size"])
        crop = (edges[0], edges[-1])
    return resize, crop


def _edges(size: Any) -> tuple[int, ...]:
    if isinstance(size, Mapping) and "shortest_edge" in size:
        return (int(size["shortest_edge"]),)
    if isinstance(size, Mapping):
        return int(size["height"]), int(size["width"])
    return _sides("size", size) * (2 if np.ndim(size) == 0 else 1)


def configuration_of(model: Any) -> Mapping[str, Any] | None:
    """What a model carries with it about its images: timm's or a processor's words; else None."""
    for name in ("pretrained_cfg", "default_cfg", "preprocessor_config"):
        said: Any = getattr(model, name, None)
        said = said.to_dict() if hasattr(said, "to_dict") else said
        if isinstance(said, Mapping) and said:
            return said
    return None


def configured_for(model: Any, images: Tensor) -> Preparation | None:
    """What a model's own configuration asks for, for images of this size; None without one."""
    said = configuration_of(model)
    if said is None:
        return None
    name = said.get("architecture") or said.get("image_processor_type") or type(model).__name__
    height, width = images.shape[2:]
    return from_config(said, height, width, f"the configuration of {cut(name, 60)}")
