"""Weight averages."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from classwise.recipe import Method
from classwise.slots import Average, Slots


class EMA(Method):
    """An exponential average of the weights, once per epoch: θ̄ ← d·θ̄ + (1 − d)·θ.

    The first update copies the weights. Buffers such as BatchNorm's are averaged too.
    """

    name: ClassVar[str] = "ema"
    paper: ClassVar[str] = "as used by Wei et al., CVPR 2023"

    decay: Annotated[float, Field(ge=0, lt=1)] = 0.85  # d
    start: Annotated[float, Field(ge=0)] = 0.25  # epoch, or fraction of the run

    def fill(self) -> Slots:
        """One average."""
        return Slots(averages=(Average("ema", self.decay, self.start),))
