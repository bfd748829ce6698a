"""BAT: train near the boundary and pull predictions to uniform (Sun et al., AAAI 2023)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from classwise.attacks.inner import View
from classwise.attacks.losses import divergence
from classwise.attacks.stops import LastCorrectWatch, StopWatch
from classwise.errors import ClasswiseError
from classwise.methods.zhang2020_fat import FriendlyStop
from classwise.objective import Outer, Term, label_loss
from classwise.recipe import Among, Method
from classwise.script import Script
from classwise.slots import Slots
from classwise.types import Labels, Logits, PerSample


@dataclass(frozen=True, slots=True)
class LastCorrectStop:
    """The last iterate that the model still got right."""

    def watch(self, labels: Labels, epoch: int, epochs: int) -> StopWatch:  # noqa: ARG002
        """Begin to watch one batch."""
        return LastCorrectWatch(labels)


@dataclass(frozen=True, slots=True)
class BatObjective:
    """CE(x_c) + β_y·KL(p(x) ‖ p(x_a)) + u·KL(p(x_c) ‖ U) + u·KL(p(x_a) ‖ U).

    x_c is the last correct iterate, x_a the first adversarial one (the robust view).
    """

    uniformity: float  # u

    @property
    def views(self) -> tuple[str, ...]:
        """The released code's order, which BatchNorm's running statistics see."""
        return ("lastclean", "robust", "clean")

    def terms(self, outer: Outer) -> Sequence[Term]:
        """Four terms; gradients flow through every prediction."""
        rows = outer.rows
        last, first = outer.outputs["lastclean"], outer.outputs["robust"]
        boundary = divergence(outer.outputs["clean"], first)
        weight, u = rows.robust_weight, self.uniformity
        return [
            Term("lastclean_ce", label_loss(outer, "lastclean"), rows.label_weight),
            Term("robust_kl", boundary, weight, rows.beta),
            Term("lastclean_uniform", from_uniform(last), weight, u),
            Term("robust_uniform", from_uniform(first), weight, u),
        ]


def from_uniform(logits: Logits) -> PerSample:
    """KL(p ‖ U) = log K + Σ p log p, per sample."""
    logs = logits.log_softmax(1)
    return (logs.exp() * logs).sum(1) + math.log(logits.shape[1])


class BAT(Method):
    """Learn the label just before the boundary and consistency just behind it, both less surely.

    It replaces TRADES' loss and adds a second attacked view; β, steps and BatchNorm mode stay
    those of TRADES.
    """

    name: ClassVar[str] = "bat"
    paper: ClassVar[str] = "Sun et al., AAAI 2023"
    extends: ClassVar[frozenset[str]] = frozenset({"trades"})
    implies: ClassVar[str | None] = "trades"

    uniformity: Annotated[float, Field(ge=0)] = 1.0  # weight of both pulls to uniform
    patience: Annotated[int, Field(ge=0)] = 1  # τ of the first adversarial view

    def suggests(self, among: Among) -> Script:  # noqa: ARG002
        """BAT's script, whose second half trains at the last rate."""
        return Script(model="resnet18", epochs=200)

    def resolve(self, among: Among) -> Method:
        """Refuse a form of TRADES' loss that this one replaces."""
        if among.option("trades", "normalised"):
            raise ClasswiseError(
                "trades(normalised=true) divides TRADES' loss by 1 + β, but bat puts a loss of its "
                "own in its place; leave normalised out, or leave bat out"
            )
        return self

    def fill(self) -> Slots:
        """Fill start, stop rule, second view and objective."""
        return Slots(
            start="clipped gaussian",
            stop=FriendlyStop("original", self.patience),
            extra_views=(View("lastclean", LastCorrectStop()),),
            objective=BatObjective(self.uniformity),
        )
