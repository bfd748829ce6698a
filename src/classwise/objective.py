"""What training lowers: named terms per sample, each with its class weight and its scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classwise.attacks.inner import Moment
from classwise.classes.settings import ClassSettings
from classwise.types import Batch, Images, Labels, Logits, PerSample

Reduction: TypeAlias = Literal["mean", "weighted mean", "common mean"]


@dataclass(frozen=True, slots=True)
class Outer:
    """All that an objective or a regulariser sees of a batch."""

    outputs: Mapping[str, Logits]  # K + M outputs of each view that was forwarded
    labels: Labels
    rows: ClassSettings  # the settings of each sample
    soft: Mapping[str, Tensor] = field(default_factory=dict)  # soft labels, where a mix made them
    teacher: Logits | None = None  # of the clean images


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
        """Which inputs it wants forwarded, in this order: `clean`, `robust`, …."""

    def terms(self, outer: Outer) -> Sequence[Term]:
        """Terms from the outputs of its views."""


class Regulariser(Protocol):
    """A penalty on a whole batch, which may keep state; the state is checkpointed."""

    @property
    def name(self) -> str:
        """Name in the history and in the checkpoint."""

    def begin(self, num_classes: int) -> dict[str, Tensor]:
        """State before the first batch."""

    def penalty(
        self, outer: Outer, state: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Penalty of a batch, and the state after it."""


@dataclass(frozen=True, slots=True)
class Attacked:
    """A batch after its attack, as a mix is given it."""

    batch: Batch
    views: Mapping[str, Images]  # `clean`, and what the attack made of it
    outputs: int  # K + M
    num_classes: int  # K
    moment: Moment


class Mix(Protocol):
    """After the attack: new outer inputs, and soft labels over all outputs."""

    @property
    def pure(self) -> bool:
        """Whether the `robust` input still is the attacked image, so that it may be counted."""

    def __call__(self, given: Attacked) -> tuple[dict[str, Images], dict[str, Tensor]]:
        """Inputs by view, and soft labels by view."""


@dataclass(frozen=True, slots=True)
class Descent:
    """One step of the weights in its parts, which a step rule puts together."""

    forward: Callable[[], Tensor]  # the loss, anew at every call
    model: nn.Module
    backward: Callable[[Tensor], None]
    update: Callable[[], None]
    moment: Moment


class StepRule(Protocol):
    """How a loss becomes an update of the weights."""

    def __call__(self, descent: Descent) -> None:
        """Call `backward` on a loss and then `update`, with whatever comes in between."""


def plain_step(descent: Descent) -> None:
    """Backward, then step."""
    descent.backward(descent.forward())
    descent.update()


def total(terms: Sequence[Term], reduction: Reduction) -> Tensor:
    """Reduce every term over the batch, Σ w·s·l / n or Σ w·s·l / Σ w, and add them up.

    A common mean divides all terms by one sum, that of the weights of all of them.

    >>> one, w = torch.tensor([1.0, 3.0]), torch.tensor([3.0, 1.0])
    >>> term = Term("ce", one, w)
    >>> total([term], "mean").item(), total([term], "weighted mean").item()
    (3.0, 1.5)
    >>> total([term, Term("kl", one, 2 * w)], "common mean").item()
    1.5
    """
    sums = torch.stack([(term.weight * term.scale * term.values).sum() for term in terms])
    if reduction == "mean":
        return (sums / len(terms[0].values)).sum()
    weights = torch.stack([term.weight.sum() for term in terms])
    return (sums / weights).sum() if reduction == "weighted mean" else sums.sum() / weights.sum()


def label_loss(outer: Outer, view: str) -> PerSample:
    """Cross-entropy per sample to the label, or to the soft label a mix made for this view.

    The class's logit margin is taken off the true logit.
    """
    logits = outer.outputs[view]
    margin = outer.rows.logit_margin.to(logits.dtype)
    taken = torch.zeros_like(logits).scatter_(1, outer.labels[:, None], margin[:, None])
    return F.cross_entropy(logits - taken, outer.soft.get(view, outer.labels), reduction="none")
