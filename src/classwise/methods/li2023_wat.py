"""WAT: worst-class adversarial training by exponential weights (Li and Liu, AAAI 2023)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from classwise.classes.settings import ClassPolicy, ClassSettings, Feedback, Seen
from classwise.errors import ClasswiseError
from classwise.recipe import Among, Method
from classwise.script import Script
from classwise.slots import Slots

VALID = Seen("valid", "robust")


@dataclass(frozen=True, slots=True)
class ExpertWeights(ClassPolicy):
    """K experts bet on one class each, one more on the average; w_i = K·exp(η·c_i)/Σ exp(η·c).

    c adds up each expert's validation loss over the epochs. The average expert's loss is a sum
    over all samples, so it adds the same w_{K+1} to every class: a class weighs w_k + w_{K+1}.
    In the first epoch all w are 1.
    """

    writes: ClassVar[frozenset[str]] = frozenset({"label_weight", "robust_weight"})
    rate: float  # η
    cost: Tensor | None = field(default=None, repr=False)  # c, K + 1 numbers

    def needs(self, epoch: int) -> frozenset[Seen]:
        """The recipe's own loss on validation data."""
        return frozenset({VALID}) if epoch else frozenset()

    def update(
        self, settings: ClassSettings, feedback: Feedback
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Add the epoch's cost and weigh both terms by what follows."""
        if not feedback.epoch:
            return settings.weighed(torch.full_like(settings.label_weight, 2)), self
        if VALID not in feedback.counts:
            raise ClasswiseError(
                "wat weighs the classes by validation loss, but there is none; set valid=0.06"
            )
        counts = feedback.counts[VALID]
        sums, sizes = counts.losses["total"], counts.sizes
        average = sums.sum() / sizes.sum().clamp(min=1)
        each = torch.where(counts.present, sums / sizes.clamp(min=1), average)
        fresh = torch.cat([each, average[None]])
        cost = fresh if self.cost is None else self.cost + fresh
        expert = len(sums) * (self.rate * cost).softmax(0)  # softmax takes the largest off first
        return settings.weighed(expert[:-1] + expert[-1]), replace(self, cost=cost)


class WAT(Method):
    """Weigh each class by the exponential of its validation loss added up over the epochs."""

    name: ClassVar[str] = "wat"
    paper: ClassVar[str] = "Li and Liu, AAAI 2023"

    rate: Annotated[float, Field(ge=0)] = 0.1  # η

    def fill(self) -> Slots:
        """One policy, which writes both weights."""
        return Slots(policies=(ExpertWeights(self.rate),))

    def suggests(self, among: Among) -> Script:  # noqa: ARG002
        """WAT's script; the last 300 of CIFAR-10's 5000 images of a class validate."""
        return Script(model="resnet18", epochs=100, valid="last:0.06")
