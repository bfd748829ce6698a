"""What a corruption draws at random: functions of the seed, its own name and the image's number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from classwise.draws import Draws


@dataclass(frozen=True)
class Chance:
    """Random numbers of one corruption for some images; `part` tells its draws apart.

    A comparison with somebody else's code hands in another one, which repeats what that code drew.
    """

    seed: int
    purpose: str
    index: Tensor

    def normal(self, part: str, shape: Sequence[int]) -> Tensor:
        """Standard normal numbers, a block for each image."""
        return Draws(self.seed, f"{self.purpose} {part}").noise(self.index, shape)

    def uniform(self, part: str, shape: Sequence[int]) -> Tensor:
        """Numbers in [0, 1), a block for each image."""
        return Draws(self.seed, f"{self.purpose} {part}").uniform(self.index, shape)
