"""Perturbations that outlive their batch: where an attack begins is where an earlier one ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from torch import Tensor

from classwise.attacks.ball import Ball
from classwise.attacks.inner import Moment
from classwise.data.augment import Transform
from classwise.types import Batch, Images, Labels, PerSample

CARRIED = "carried"  # its name among the memories of a run
Memory: TypeAlias = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Visit:
    """A batch as it is attacked now: transformed, with a radius and a step per sample."""

    batch: Batch
    moment: Moment
    radius: PerSample
    step: PerSample
    ball: Ball
    augment: Transform  # what transformed the images


class Carry(Protocol):
    """A rule that remembers perturbations; what it remembers is checkpointed."""

    @property
    def replays(self) -> int:
        """Steps of the weights that each batch is worth."""

    @property
    def shared(self) -> bool:
        """Whether the gradient of a step of the weights is all that moves the perturbation."""

    @property
    def by_image(self) -> bool:
        """Whether each image has a perturbation of its own, taken back through the transform."""

    def begin(self, index: Labels) -> dict[str, Tensor]:
        """Memory before the first batch; `index` are the keys of all images that train."""

    def recall(self, visit: Visit, memory: Memory) -> Tensor | None:
        """Offsets to begin from; NaN, or None for all, where the recipe's own start begins."""

    def keep(self, visit: Visit, robust: Images, memory: Memory) -> dict[str, Tensor]:
        """Memory after a step; `robust` is where the attack ended, with its slope if shared."""
