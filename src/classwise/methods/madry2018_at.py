"""AT: train on the worst image found near each training image (Madry et al., ICLR 2018)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from classwise.attacks.pgd import BatchNormMode
from classwise.methods.clean import LabelObjective
from classwise.recipe import Method
from classwise.slots import AttackStep, Slots
from classwise.spelling import QUARTER


class AT(Method):
    """Lower CE(f(x'), y), where x' climbs the same cross-entropy inside the ball.

    BatchNorm runs in train mode during the attack by default, as in the code that the papers
    build on (Rice et al.).
    """

    name: ClassVar[str] = "at"
    paper: ClassVar[str] = "Madry et al., ICLR 2018"
    base: ClassVar[bool] = True

    steps: Annotated[int, Field(ge=0)] = 10  # T
    step: AttackStep = QUARTER  # α, a number or a share of eps
    batchnorm: BatchNormMode = "train"

    def fill(self) -> Slots:
        """Fill the attack and the objective."""
        return Slots(
            reference="label",
            start="uniform",
            steps=self.steps,
            step=self.step,
            batchnorm=self.batchnorm,
            objective=LabelObjective("robust"),
        )
