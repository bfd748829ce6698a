"""Label augmentation: attacked images also name their operation (Amerehi and Healy, 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from classwise.attacks.ball import per_image
from classwise.errors import ClasswiseError
from classwise.objective import Attacked
from classwise.papers import PAPERS
from classwise.recipe import Among, Method
from classwise.script import Script
from classwise.slots import Slots
from classwise.spelling import QUARTER
from classwise.types import Images


@dataclass(frozen=True, slots=True)
class OperationLabels:
    """1 − δ on the class and δ on the attack's own output; clean images keep a whole label."""

    share: float  # δ
    clean: float = 0.0  # probability that an image enters unattacked

    @property
    def pure(self) -> bool:
        """Whether every image of the outer forward is an attacked one."""
        return self.clean == 0

    def __call__(self, given: Attacked) -> tuple[dict[str, Images], dict[str, Tensor]]:
        """Label the attacked images; swap some for clean ones where asked to."""
        batch, robust = given.batch, given.views["robust"]
        share = torch.full((len(batch),), self.share, dtype=robust.dtype, device=robust.device)
        if self.clean:
            keep = given.moment.draws("mix").uniform(batch.index) < self.clean
            robust = torch.where(per_image(keep), batch.images, robust)
            share = share.masked_fill(keep, 0.0)
        soft = torch.zeros(len(batch), given.outputs, dtype=robust.dtype, device=robust.device)
        soft.scatter_(1, batch.labels[:, None], (1 - share)[:, None])
        soft[:, given.num_classes] = share  # the attack takes the first slot behind the classes
        return {**given.views, "robust": robust}, {"robust": soft}


class LabelAug(Method):
    """Adv+: give attacked images a share δ of a label of their own behind the K classes.

    The head has K + M outputs, the extra rows begin at zero, and the attack sees the K class
    logits, as do counts and audits.
    """

    name: ClassVar[str] = "labelaug"
    paper: ClassVar[str] = PAPERS["amerehi"].source
    baselines: ClassVar[frozenset[str]] = frozenset({"clean", "at"})  # its rows Std and Adv

    share: Annotated[float, Field(ge=0, lt=1)] = 0.03  # δ
    slots: Annotated[int, Field(ge=1)] = 1  # M; one per operation, and the attack is the only one
    clean: Annotated[float, Field(ge=0, lt=1)] = 0.0  # probability of an unattacked image
    head: str | None = None  # layer of a model of your own, such as backbone.fc; None finds it

    def suggests(self, among: Among) -> Script:  # noqa: ARG002
        """What the paper says; where it says nothing, the protocol that the papers share."""
        return Script(
            model="resnet50",
            epochs=10,
            drops=(),
            schedule="cosine",
            lr=0.01,
            final_lr=1e-6,
            batch_size=64,
            weight_decay=5e-4,
            eps=0.03,
            step=QUARTER,
            valid="0.02",
            crop={},
        )

    def resolve(self, among: Among) -> Method:
        """Refuse outputs that no operation would ever use."""
        if self.slots > 1:
            base = "the base" if among.base is None else among.base.name
            raise ClasswiseError(
                f"labelaug(slots={self.slots}): the attack of {base} is the only operation and "
                f"takes one output, so that {self.slots - 1} would stay idle; leave slots out"
            )
        return self

    def fill(self) -> Slots:
        """Fill the mix and the extra outputs."""
        return Slots(
            mix=OperationLabels(self.share, self.clean),
            extra_outputs=self.slots,
            head_path=self.head,
        )
