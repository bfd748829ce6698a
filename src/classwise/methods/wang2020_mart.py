"""MART: misclassified samples count more in the consistency term (Wang et al., ICLR 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from classwise.attacks.losses import divergence
from classwise.models.asking import BatchNormMode
from classwise.objective import Outer, Term, label_loss
from classwise.recipe import Among, Method
from classwise.script import Script
from classwise.slots import AttackStep, AttackSteps, Slots
from classwise.spelling import QUARTER


@dataclass(frozen=True, slots=True)
class MartObjective:
    """BCE(f(x'), y) + β_y · (1 − p_y(x)) · KL(p(x) ‖ p(x'))."""

    @property
    def views(self) -> tuple[str, ...]:
        """Clean first, then robust."""
        return ("clean", "robust")

    def terms(self, outer: Outer) -> Sequence[Term]:
        """Two terms; gradients flow through all predictions, as in the original."""
        rows, label = outer.rows, outer.labels[:, None]
        clean, robust = outer.outputs["clean"], outer.outputs["robust"]
        rival = robust.softmax(1).scatter(1, label, 0.0).amax(1)
        # The small excesses over 1 are the original's; they keep logarithm and gradient finite.
        boosted = label_loss(outer, "robust") - (1.0001 - rival).log()
        doubt = 1.0000001 - clean.softmax(1).gather(1, label).squeeze(1)
        return [
            Term("robust_bce", boosted, rows.label_weight),
            Term("doubted_kl", doubt * divergence(clean, robust), rows.robust_weight, rows.beta),
        ]


class Mart(Method):
    """Pay more for samples the model doubts: BCE(f(x'), y) + β·(1 − p_y(x))·KL(p(x) ‖ p(x')).

    BCE adds −log(1 − max_{j≠y} p_j(x')) to the cross-entropy.
    """

    name: ClassVar[str] = "mart"
    paper: ClassVar[str] = "Wang et al., ICLR 2020"
    base: ClassVar[bool] = True

    beta: Annotated[float, Field(ge=0)] = 5.0  # β, λ in the paper
    steps: AttackSteps = 10  # T, a number or a schedule such as {0: 2, 0.5: 10}
    step: AttackStep = QUARTER  # α, a number or a share of eps
    batchnorm: BatchNormMode = "eval"

    def fill(self) -> Slots:
        """Fill the attack, the objective and its β."""
        return Slots(
            reference="label",
            start="gaussian",
            steps=self.steps,
            step=self.step,
            batchnorm=self.batchnorm,
            objective=MartObjective(),
            beta=self.beta,
        )

    def suggests(self, among: Among) -> Script:  # noqa: ARG002
        """The script for ResNet-18."""
        return Script(model="resnet18", epochs=120, lr=0.01, weight_decay=3.5e-3)
