"""AWP: step with the gradient at the worst nearby weights (Wu et al., NeurIPS 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from classwise.models.asking import batchnorm_mode
from classwise.objective import Descent
from classwise.recipe import Among, Method
from classwise.slots import Slots
from classwise.stages import epoch_of


@dataclass(frozen=True, slots=True)
class WeightPerturbation:
    """Climb the loss in the weights by w ← w + γ·‖w‖/‖g‖·g per layer, take the gradient there.

    Only weights with more than one dimension move. They are put back bit for bit before the
    optimiser steps.
    """

    size: float  # γ
    start: float  # epoch, or fraction of the run

    def __call__(self, descent: Descent) -> None:
        """Perturb, backward, restore, update."""
        forward, model, moment = descent.forward, descent.model, descent.moment
        if moment.epoch < epoch_of(self.start, moment.epochs):
            descent.backward(forward())
        else:
            weights = [p for p in model.parameters() if p.ndim > 1 and p.requires_grad]
            # The look uphill must not count in BatchNorm's running statistics.
            with batchnorm_mode(model, "batch"):
                slopes = torch.autograd.grad(forward(), weights, allow_unused=True)
            with perturbed(weights, slopes, self.size):
                descent.backward(forward())
        descent.update()


@contextmanager
def perturbed(
    weights: list[nn.Parameter], slopes: tuple[Tensor | None, ...], size: float
) -> Iterator[None]:
    """Move weights along their slopes, and put the old values back whatever happens."""
    before = [weight.detach().clone() for weight in weights]
    try:
        with torch.no_grad():
            for weight, slope in zip(weights, slopes, strict=True):
                if slope is not None:
                    length = slope.norm().clamp(min=torch.finfo(slope.dtype).tiny)
                    weight.add_(slope * (size * weight.norm() / length))
        yield
    finally:
        with torch.no_grad():
            for weight, old in zip(weights, before, strict=True):
                weight.copy_(old)


class AWP(Method):
    """Perturb the weights too: take each step's gradient at nearby weights with a higher loss."""

    name: ClassVar[str] = "awp"
    paper: ClassVar[str] = "Wu et al., NeurIPS 2020"

    size: Annotated[float, Field(ge=0)] | None = None  # γ; None is 0.01, on TRADES 0.005
    start: Annotated[float, Field(ge=0)] | None = None  # epoch or fraction; None: 0 or 0.05

    def resolve(self, among: Among) -> Method:
        """Take the paper's values for the base: smaller and later on TRADES."""
        found: dict[str, Any] = {}
        if self.size is None:
            found["size"] = among.first({"trades": 0.005}, 0.01)
        if self.start is None:
            found["start"] = among.first({"trades": 0.05}, 0.0)  # 10 of 200 epochs
        return self.model_copy(update=found)

    def fill(self) -> Slots:
        """Fill the step rule."""
        return Slots(step_rule=WeightPerturbation(self.size or 0.0, self.start or 0.0))
