"""What a released script trains with; the preset `paper:NAME` takes it from the method NAME."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from classwise.spelling import Share

Drop: TypeAlias = float | tuple[float, float]  # when the rate falls, and by what factor if not 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Settings of one script. The defaults are those of TRADES' script, as most grew from it.

    `drops` are epochs counted from 0. The scripts count from 1 and lower the rate where
    `epoch >= 75`, so their epoch number 75, the first at the lower rate, is our 74. What a script
    does not decide (optimiser, momentum, steps of the attack) is that of the preset `paper`.
    """

    model: str
    epochs: int
    drops: tuple[Drop, ...] = (74, 89, 99)
    lr: float = 0.1
    final_lr: float = 0.0
    schedule: Literal["step", "cosine"] = "step"
    weight_decay: float = 2e-4
    nesterov: bool = False
    batch_size: int = 128
    eps: float = 0.031
    step: float | Share = 0.007  # of the attack, a number or a share of eps
    valid: str = "0"  # all training images train
    crop: Mapping[str, Any] = field(default_factory=lambda: {"padding": "zero"})  # {}: as it is
    base: Mapping[str, Any] = field(default_factory=dict)  # further options of the base method
    own: Mapping[str, Any] = field(default_factory=dict)  # options of the method itself

    @property
    def training(self) -> dict[str, Any]:
        """The part that belongs to the training configuration."""
        others = ("step", "crop", "base", "own")
        return {name: getattr(self, name) for name in self.__slots__ if name not in others}
