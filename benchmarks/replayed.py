"""The corruptions of `imagecorruptions-imaug`, and ours on the very numbers that it drew.

What that package draws from NumPy's global generator is written down; our function is then given
the same numbers, so that random corruptions can be compared image by image. Its glass blur is run
without its compiler, which draws from a generator of its own. Shot and impulse noise turn chance
into pixels in another way: they are compared by their statistics alone.
"""

from __future__ import annotations

import importlib.resources
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from classwise.corruptions import digital
from classwise.corruptions.chance import Chance
from classwise.corruptions.corrupting import made_by
from classwise.corruptions.severities import LARGE

DETERMINISTIC = (
    *("defocus_blur", "zoom_blur", "gaussian_blur", "brightness", "contrast", "saturate"),
    *("pixelate", "jpeg_compression"),
)
STATISTICAL = ("shot_noise", "impulse_noise")
REPLAYED = (
    *("gaussian_noise", "speckle_noise", "glass_blur", "motion_blur", "snow", "frost", "fog"),
    *("elastic_transform", "spatter"),
)


def package() -> Any:
    """The package, which is an extra for developers."""
    import imagecorruptions

    return imagecorruptions


def theirs(image: Any, name: str, severity: int) -> Any:
    """One image by the package, as its users call it."""
    return package().corrupt(image, corruption_name=name, severity=severity)


@dataclass
class Drawn:
    """What was drawn, in its order, as normal numbers or shares of a range."""

    normal: list[Any] = field(default_factory=list)
    uniform: list[Any] = field(default_factory=list)


@contextmanager
def written_down(seed: int) -> Iterator[Drawn]:
    """Write down what NumPy's global generator gives."""
    drawn, rng = Drawn(), np.random.default_rng(seed)

    def normal(loc: float = 0.0, scale: float = 1.0, size: Any = None) -> Any:
        drawn.normal.append(rng.standard_normal(size))
        return loc + scale * drawn.normal[-1]

    def uniform(low: float = 0.0, high: float = 1.0, size: Any = None) -> Any:
        drawn.uniform.append(rng.random(size))
        return low + (high - low) * drawn.uniform[-1]

    def randint(low: int, high: int | None = None, size: Any = None) -> Any:
        first, last = (0, low) if high is None else (low, high)
        found = rng.integers(first, last, size)
        drawn.uniform.append((found - first + 0.5) / (last - first))
        return found

    with mock.patch.multiple("numpy.random", normal=normal, uniform=uniform, randint=randint):
        yield drawn


@dataclass
class Replay:
    """In the place of `Chance`: the numbers that somebody else drew, part by part."""

    normals: dict[str, Any] = field(default_factory=dict)
    uniforms: dict[str, Any] = field(default_factory=dict)

    def normal(self, part: str, shape: Sequence[int]) -> Tensor:
        """A block of normal numbers."""
        return _block(self.normals[part], shape)

    def uniform(self, part: str, shape: Sequence[int]) -> Tensor:
        """A block of uniform numbers."""
        return _block(self.uniforms[part], shape)


def _block(numbers: Any, shape: Sequence[int]) -> Tensor:
    return torch.from_numpy(np.array(numbers, np.float32).reshape(1, *shape))


def both(image: Any, name: str, severity: int, seed: int = 0) -> tuple[Any, Any]:
    """One image by the package and by us, on the same numbers."""
    module = package().corruptions
    shuffled = module._shuffle_pixels_njit_glass_blur.py_func
    with (
        written_down(seed) as drawn,
        mock.patch.object(module, "_shuffle_pixels_njit_glass_blur", shuffled),
        mock.patch("numpy.random.seed"),
    ):
        other = theirs(image, name, severity)
    chance = _REPLAYS[name](drawn, image.shape) if name in _REPLAYS else Replay()
    return other, _made(image, name, severity, chance)


def with_their_constants(image: Any, name: str, severity: int, seed: int) -> Any:
    """One image by us on numbers of our own, where the package differs as it has it."""
    chance = Chance(seed, f"corruption {name}-{severity}", torch.tensor([0]))
    return _made(image, name, severity, chance)


def _made(image: Any, name: str, severity: int, chance: Any) -> Any:
    planes = torch.from_numpy(image.copy()).permute(2, 0, 1)[None].float() / 255
    if name == "elastic_transform":
        ours = _elastic(planes, severity, chance)
    else:
        textures = _textures(image.shape[:2]) if name == "frost" else None
        ours = made_by(planes, name, severity, chance, textures)
    return ours[0].permute(1, 2, 0).numpy().astype(np.uint8)


def _elastic(planes: Tensor, severity: int, chance: Any) -> Tensor:
    """At the package's constants, which are not ImageNet-C's: it moves no corners, for one."""
    far = [250 * part for part in (0.05, 0.065, 0.085, 0.1, 0.12)][severity - 1]
    level = (far * 0.005 * LARGE, 0.01 * LARGE, 0.0)  # lengths grow with the image there, too
    made = digital.elastic_transform(planes, level, chance)
    return (made.clamp(0, 1) * 255 + 1e-3).floor()


@cache
def _textures(shape: tuple[int, int]) -> tuple[Tensor, ...]:
    """The package's photographs of frost, enlarged as it does."""
    import cv2

    found = []
    for name in ("1.png", "2.png", "3.png", "4.jpg", "5.jpg", "6.jpg"):
        place = importlib.resources.files("imagecorruptions") / "frost" / f"frost{name}"
        with importlib.resources.as_file(place) as path:
            picture = cv2.imread(str(path))
        assert picture is not None, f"{name} cannot be read"
        scale = 1.1 * max(1.0, shape[0] / picture.shape[0], shape[1] / picture.shape[1])
        size = [math.ceil(side * scale) for side in picture.shape[1::-1]]
        picture = cv2.resize(picture, dsize=size, interpolation=cv2.INTER_CUBIC)[..., ::-1]
        found.append(torch.from_numpy(picture.copy()).permute(2, 0, 1).float() / 255)
    return tuple(found)


def _noise(drawn: Drawn, shape: Sequence[int]) -> Replay:
    del shape
    return Replay({"noise": drawn.normal[0].transpose(2, 0, 1)})


def _glass(drawn: Drawn, shape: Sequence[int]) -> Replay:
    """Pairs of (right, down), from the last pixel to the first, turn after turn."""
    pairs = np.array(drawn.uniform)
    for reach in (1, 2, 3, 4):
        size = (shape[0] - 2 * reach, shape[1] - 2 * reach)
        turns = len(pairs) / math.prod(size)
        if turns in (1, 2, 3):
            cut = np.split(pairs, int(turns))
            blocks = [part.reshape(*size, 2)[::-1, ::-1] for part in cut]
            return Replay({}, {f"glass {turn}": block for turn, block in enumerate(blocks)})
    raise ValueError(f"{len(pairs)} draws fit no reach")


def _fog(drawn: Drawn, shape: Sequence[int]) -> Replay:
    side = 2 ** math.ceil(math.log2(max(shape)))
    found = {}
    for number in range(int(math.log2(side))):
        found[f"height {side >> number}"] = np.stack(drawn.uniform[3 * number : 3 * number + 3])
    return Replay({}, found)


_REPLAYS: dict[str, Callable[[Drawn, Sequence[int]], Replay]] = {
    "gaussian_noise": _noise,
    "speckle_noise": _noise,
    "glass_blur": _glass,
    "motion_blur": lambda drawn, _: Replay({}, {"angle": drawn.uniform[0]}),
    "snow": lambda drawn, _: Replay({"flakes": drawn.normal[0]}, {"wind": drawn.uniform[0]}),
    "spatter": lambda drawn, _: Replay({"drops": drawn.normal[0]}),
    "frost": lambda drawn, _: Replay({}, {"window": np.array(drawn.uniform)}),
    "fog": _fog,
    "elastic_transform": lambda drawn, _: Replay({}, {"field": np.stack(drawn.uniform)}),
}
