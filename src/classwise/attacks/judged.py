"""The verdict of an attack on every sample of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from torch import Tensor

from classwise.types import Images, Labels, PerSample

STANDING = -1  # in `Judged.fell_to`
Tell: TypeAlias = Callable[[str, Tensor], None]  # hears of each attack of a suite who still stands


def tell_nobody(attack: str, standing: Tensor) -> None:
    """Listen to nothing."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on every sample of a batch, in batch order.

    `predicted` equals the label if and only if the sample stands; a fallen one has the class that
    the model, asked once more, gives to its adversarial image. A certificate that names no class at
    its radius has the number K, one more than any class.
    """

    predicted: Labels
    logit_gap: PerSample  # true logit minus best other: at the verdict, or the smallest met
    iterations: Tensor  # evaluations spent
    fell_to: Tensor  # number of the attack in `attacks`; STANDING where none broke it
    attacks: tuple[str, ...]  # `clean` is an attack here: it breaks what was wrong all along
    images: Images  # where the verdict was found
    losses: Mapping[str, PerSample] = field(default_factory=dict)  # where an attack measures some
    certified_radius: PerSample | None = None  # how far the label is proved to stay, if at all
