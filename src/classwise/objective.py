"""What training lowers: named terms per sample, each with its class weight and its scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from classwise.classes.settings import ClassSettings
from classwise.types import Labels, Logits, PerSample

Reduction: TypeAlias = Literal["mean", "weighted mean"]


@dataclass(frozen=True, slots=True)
class Term:
    """One part of the loss, before any mean."""

    name: str
    values: PerSample
    weight: PerSample  # of the sample's class; the denominator of a weighted mean
    scale: PerSample | float = 1.0  # such as β; never part of a denominator


class Objective(Protocol):
    """The outer loss of a recipe."""

    @property
    def views(self) -> tuple[str, ...]:
        """Which inputs it wants forwarded, in this order: `clean`, `robust`."""

    def terms(
        self, outputs: Mapping[str, Logits], labels: Labels, rows: ClassSettings
    ) -> Sequence[Term]:
        """Terms from the logits of its views; `rows` holds the settings of each sample."""


def total(terms: Sequence[Term], reduction: Reduction) -> Tensor:
    """Reduce every term over the batch, Σ w·s·l / n or Σ w·s·l / Σ w, and add them up.

    >>> one, w = torch.tensor([1.0, 3.0]), torch.tensor([3.0, 1.0])
    >>> term = Term("ce", one, w)
    >>> total([term], "mean").item(), total([term], "weighted mean").item()
    (3.0, 1.5)
    """
    parts = []
    for term in terms:
        weighted = (term.weight * term.scale * term.values).sum()
        share = term.weight.sum() if reduction == "weighted mean" else len(term.values)
        parts.append(weighted / share)
    return torch.stack(parts).sum()


def label_loss(logits: Logits, labels: Labels, rows: ClassSettings) -> PerSample:
    """Cross-entropy per sample, with the class's logit margin taken off the true logit."""
    taken = torch.zeros_like(logits).scatter_(1, labels[:, None], rows.logit_margin[:, None])
    return F.cross_entropy(logits - taken, labels, reduction="none")
