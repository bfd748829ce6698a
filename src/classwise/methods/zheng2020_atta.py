"""ATTA: attack where the last epoch's attack on the same image ended (Zheng et al., CVPR 2020)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from classwise.attacks.carried import Memory, Visit
from classwise.data.augment import Placing
from classwise.recipe import Among, Method
from classwise.slots import AttackStep, AttackSteps, Slots
from classwise.spelling import Share
from classwise.types import Images, Labels

INDEX, OFFSETS = "index", "offsets"  # keys of all images in order, and n×h×w×c perturbations


@dataclass(frozen=True, slots=True)
class PastPerturbation:
    """Every image keeps its perturbation from epoch to epoch; all is forgotten every few epochs.

    It is kept in the frame of the image before crop and flip, border and all, so that it moves
    with the image. Pixels that no window has shown since the last reset have none (NaN). Half
    precision is enough: its error is a thousandth of the radius, and the ball is kept exactly.
    """

    reset: int  # epochs
    replays: int = field(default=1, repr=False)
    shared: bool = field(default=False, repr=False)
    by_image: bool = field(default=True, repr=False)

    def begin(self, index: Labels) -> dict[str, Tensor]:
        """Who there is; room for perturbations is made when their shape is known."""
        return {INDEX: index.sort().values}

    def recall(self, visit: Visit, memory: Memory) -> Tensor | None:
        """What is known of these images, moved as the images are."""
        if OFFSETS not in memory or self._forgets(visit):
            return None
        kept: Tensor = memory[OFFSETS][self._places(visit, memory)].permute(0, 3, 1, 2)
        return kept.to(visit.batch.images)

    def keep(self, visit: Visit, robust: Images, memory: Memory) -> dict[str, Tensor]:
        """Put the new perturbation back where the window stood; the rest of the frame stays."""
        images = visit.batch.images
        offsets = memory.get(OFFSETS)
        if offsets is None:
            assert isinstance(visit.augment, Placing)
            frame = (*visit.augment.frame(images.shape), images.shape[1])
            size = (len(memory[INDEX]), *frame)
            offsets = torch.full(size, torch.nan, dtype=torch.float16, device=images.device)
        places = self._places(visit, memory)
        if self._forgets(visit):
            offsets[places[0].flatten()] = torch.nan
        # in place, for a copy per batch would cost more than the attack saves
        offsets[places] = (robust - images).permute(0, 2, 3, 1).to(offsets.dtype)
        return {INDEX: memory[INDEX], OFFSETS: offsets}

    def _forgets(self, visit: Visit) -> bool:
        return visit.moment.epoch % self.reset == 0

    def _places(self, visit: Visit, memory: Memory) -> tuple[Tensor, Tensor, Tensor]:
        """Image, row and column of every pixel that is shown."""
        batch, moment = visit.batch, visit.moment
        assert isinstance(visit.augment, Placing)
        rows, columns = visit.augment.places(
            batch.images.shape, batch.index, moment.seed, moment.epoch
        )
        who = torch.searchsorted(memory[INDEX], batch.index)
        return who[:, None, None], rows, columns


class Atta(Method):
    """Begin each attack where the last epoch's ended, so that few steps do the work of many.

    Every `reset` epochs the attack begins anew from the base's own start. Alone it brings AT; it
    works on TRADES and MART, too. Memory: two bytes per pixel of all training images, with borders.
    """

    name: ClassVar[str] = "atta"
    paper: ClassVar[str] = "Zheng et al., CVPR 2020"
    extends: ClassVar[frozenset[str]] = frozenset({"at", "trades", "mart"})
    implies: ClassVar[str | None] = "at"

    steps: AttackSteps = 1  # T in every epoch
    step: AttackStep = Share(2)  # α, a number or a share of eps
    reset: Annotated[int, Field(ge=1)] = 10  # epochs

    def resolve(self, among: Among) -> Method:
        """Refuse options of the base's attack that these replace."""
        among.check_left(self.name, ("steps", "step"))
        return self

    def fill(self) -> Slots:
        """Fill the steps and what is remembered; start and BatchNorm mode stay the base's."""
        return Slots(steps=self.steps, step=self.step, carry=PastPerturbation(self.reset))
