"""AT: train on the worst image found near each training image (Madry et al., ICLR 2018)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from classwise.attacks.inner import Start
from classwise.methods.clean import LabelObjective
from classwise.models.asking import BatchNormMode
from classwise.recipe import Method
from classwise.slots import AttackStep, AttackSteps, Slots
from classwise.spelling import QUARTER


def _no_start(value: Any) -> Any:
    return "none" if value is None else value  # a bare none in a recipe is a word here


class AT(Method):
    """Lower CE(f(x'), y), where x' climbs the same cross-entropy inside the ball.

    BatchNorm runs in train mode during the attack by default, as in the code that the papers
    build on (Rice et al.). Other code starts very near the image, in eval mode:
    `at(start=gaussian, batchnorm=eval)`.
    """

    name: ClassVar[str] = "at"
    paper: ClassVar[str] = "Madry et al., ICLR 2018"
    base: ClassVar[bool] = True

    steps: AttackSteps = 10  # T, a number or a schedule such as {0: 2, 0.5: 10}
    step: AttackStep = QUARTER  # α, a number or a share of eps
    start: Annotated[Start, BeforeValidator(_no_start)] = "uniform"
    batchnorm: BatchNormMode = "train"

    def fill(self) -> Slots:
        """Fill the attack and the objective."""
        return Slots(
            reference="label",
            start=self.start,
            steps=self.steps,
            step=self.step,
            batchnorm=self.batchnorm,
            objective=LabelObjective("robust"),
        )
