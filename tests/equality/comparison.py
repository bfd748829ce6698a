"""What one row of docs/equality.md says, and how it is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

EXACT = 1e-12


@dataclass(frozen=True)
class Released:
    """Code that the authors of a method published."""

    repository: str
    commit: str

    def __str__(self) -> str:
        return f"{self.repository} {self.commit}"


@dataclass(frozen=True)
class Comparison:
    """One method beside its released code: the largest difference of each quantity compared."""

    method: str
    recipe: str  # ours
    code: Released
    measure: Callable[[], dict[str, float]]
    remark: str = ""  # the deviation, in one sentence
    apart: tuple[str, ...] = ()  # quantities that the deviation makes differ
    bound: float = EXACT  # of all the others

    @property
    def name(self) -> str:
        return f"{self.method}: {self.recipe}"

    @cached_property
    def figures(self) -> dict[str, float]:
        """Largest differences by quantity, measured once."""
        return self.measure()

    @property
    def verdict(self) -> str:
        if not self.apart:
            return f"equal; {self.remark}" if self.remark else "equal"
        rest = [name for name in self.figures if name not in self.apart]
        which = " and ".join(self.apart)
        return f"{which} differ: {self.remark}" + ("; the rest is equal" if rest else "")


def largest(pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Largest difference over pairs of tensors, which must have the same shapes."""
    found = 0.0
    for one, other in pairs:
        assert one.shape == other.shape, (one.shape, other.shape)
        assert one.dtype == other.dtype == torch.float64, (one.dtype, other.dtype)
        found = max(found, float((one - other).abs().max()))
    return found


def over(cases: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Largest figure of each quantity over several measurements."""
    found: dict[str, float] = {}
    for case in cases:
        for name, figure in case.items():
            found[name] = max(figure, found.get(name, 0.0))
    return found
