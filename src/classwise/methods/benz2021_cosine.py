"""Keep classes apart: lower the cosine of class-mean logits (planned by Benz et al., 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from classwise.objective import Outer
from classwise.papers import PAPERS
from classwise.recipe import Method
from classwise.slots import Slots


@dataclass(frozen=True, slots=True)
class CosineApart:
    """ρ · mean over i ≠ j of cos(m_i, m_j), where m_k is a running mean of class k's logits.

    m_k ← a·m_k + (1 − a)·(mean of class k in this batch); the first batch with a class sets its
    mean. Gradients flow through the batch's part only. Classes never seen are left out.
    """

    strength: float  # ρ
    memory: float  # a
    name: str = "cosine"

    def begin(self, num_classes: int) -> dict[str, Tensor]:
        """No class has a mean yet."""
        return {
            "means": torch.zeros(num_classes, num_classes),
            "seen": torch.zeros(num_classes, dtype=torch.bool),
        }

    def penalty(
        self, outer: Outer, state: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Penalty with this batch's means in, and those means for the next batch."""
        count = len(state["seen"])
        # Attacked images where there are some; operation slots are no classes.
        logits = outer.outputs["robust" if "robust" in outer.outputs else "clean"][:, :count]
        before, seen = state["means"].to(logits), state["seen"].to(logits.device)
        # A product, since adding by index is not repeatable on a GPU.
        members = (outer.labels[:, None] == torch.arange(count, device=seen.device)).to(logits)
        sizes = members.sum(0)[:, None]
        fresh = (members.T @ logits) / sizes.clamp(min=1)
        moved = torch.where(seen[:, None], torch.lerp(fresh, before, self.memory), fresh)
        means = torch.where(sizes > 0, moved, before)
        seen = seen | (sizes[:, 0] > 0)
        unit = F.normalize(means)
        pairs = seen[:, None] & seen & ~torch.eye(count, dtype=torch.bool, device=seen.device)
        similar = (unit @ unit.T).masked_fill(~pairs, 0.0).sum() / pairs.sum().clamp(min=1)
        return self.strength * similar, {"means": means.detach(), "seen": seen}


class Cosine(Method):
    """Add ρ times the mean cosine between the mean logits of different classes."""

    name: ClassVar[str] = "cosine"
    paper: ClassVar[str] = f"after {PAPERS['benz'].source}"

    strength: Annotated[float, Field(ge=0)] = 1.0  # ρ
    memory: Annotated[float, Field(ge=0, lt=1)] = 0.9  # a, share of the past in the means

    def fill(self) -> Slots:
        """One regulariser, which keeps the class means."""
        return Slots(regularisers=(CosineApart(self.strength, self.memory),))
