"""TRADES: clean loss plus β times the divergence under attack (Zhang et al., ICML 2019)."""

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
class TradesObjective:
    """CE(f(x), y) + β_y · KL(p(x) ‖ p(x')), or the same divided by 1 + β_y."""

    normalised: bool

    @property
    def views(self) -> tuple[str, ...]:
        """Clean first, then robust: BatchNorm sees them one after the other."""
        return ("clean", "robust")

    def terms(self, outer: Outer) -> Sequence[Term]:
        """Two terms; gradients flow through both predictions, as in the original."""
        rows = outer.rows
        natural = label_loss(outer, "clean")
        boundary = divergence(outer.outputs["clean"], outer.outputs["robust"])
        share = 1 / (1 + rows.beta) if self.normalised else 1.0
        return [
            Term("clean_ce", natural, rows.label_weight, share),
            Term("robust_kl", boundary, rows.robust_weight, rows.beta * share),
        ]


class Trades(Method):
    """Trade clean against robust accuracy: CE(f(x), y) + β·KL(p(x) ‖ p(x')).

    `normalised` divides by 1 + β as the CFA code does; the default is plain, except beside a
    method that calibrates β per class.
    """

    name: ClassVar[str] = "trades"
    paper: ClassVar[str] = "Zhang et al., ICML 2019"
    base: ClassVar[bool] = True

    beta: Annotated[float, Field(ge=0)] | None = None  # β; 6, or FRL's own beside it
    normalised: bool | None = None
    steps: AttackSteps = 10  # T, a number or a schedule such as {0: 2, 0.5: 10}
    step: AttackStep = QUARTER  # α, a number or a share of eps
    batchnorm: BatchNormMode = "eval"

    def resolve(self, among: Among) -> Method:
        """Normalise where β differs from class to class; take FRL's β beside it."""
        chosen: dict[str, float | bool] = {}
        if self.beta is None:
            frl = among.option("frl", "variant")
            chosen["beta"] = {None: 6.0, "remargin": 1.0}.get(frl, 1.5)
        if self.normalised is None:
            chosen["normalised"] = bool(among.names & {"ccr", "cfa"})
        return self.model_copy(update=chosen)

    def fill(self) -> Slots:
        """Fill the attack, the objective and its β."""
        return Slots(
            reference="clean",
            start="gaussian",
            steps=self.steps,
            step=self.step,
            batchnorm=self.batchnorm,
            objective=TradesObjective(bool(self.normalised)),
            beta=self.beta,
        )

    def suggests(self, among: Among) -> Script:  # noqa: ARG002
        """TRADES' script, the ancestor of most others."""
        return Script(model="wrn-34-10", epochs=76)
