"""What one row of docs/equality.md says, and how it is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
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
        return f"{self.repository} {self.commit}".strip()


@dataclass(frozen=True)
class Comparison:
    """One method beside its released code: the largest difference of each quantity compared."""

    method: str
    recipe: str  # ours
    code: Released
    measure: Callable[[], dict[str, float]]
    remark: str = ""  # what else is worth knowing, in one sentence
    apart: Mapping[str, str] = field(default_factory=dict)  # quantities that differ, and why
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
        reasons = [f"{name} ({reason})" for name, reason in self.apart.items()]
        if not reasons:
            found = "equal"
        elif len(reasons) < len(self.figures):
            found = f"equal but for {' and '.join(reasons)}"
        else:
            found = f"differs ({', '.join(dict.fromkeys(self.apart.values()))})"
        return f"{found}; {self.remark}" if self.remark else found


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
