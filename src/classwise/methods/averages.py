"""Weight averages that look at nothing but the weights."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from classwise.papers import PAPERS
from classwise.recipe import Method
from classwise.slots import Average, Slots


class EMA(Method):
    """An exponential average of the weights, once per epoch: θ̄ ← d·θ̄ + (1 − d)·θ.

    The first update copies the weights. Buffers such as BatchNorm's are averaged too.
    """

    name: ClassVar[str] = "ema"
    paper: ClassVar[str] = f"as used by {PAPERS['wei'].source}"

    decay: Annotated[float, Field(ge=0, lt=1)] = 0.85  # d
    start: Annotated[float, Field(ge=0)] = 0.25  # epoch, or fraction of the run

    def fill(self) -> Slots:
        """One average."""
        return Slots(averages=(Average("ema", self.decay, self.start),))


class SWA(Method):
    """The plain mean of the weights of all epochs from `start` on.

    BatchNorm's statistics are averaged with the weights instead of being measured anew.
    """

    name: ClassVar[str] = "swa"
    paper: ClassVar[str] = "Izmailov et al., UAI 2018"

    start: Annotated[float, Field(ge=0)] = 0.75  # epoch, or fraction of the run

    def fill(self) -> Slots:
        """One average without a decay."""
        return Slots(averages=(Average("swa", None, self.start),))
