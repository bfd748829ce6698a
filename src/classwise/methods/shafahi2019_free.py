"""Free: one gradient for the weights and the perturbation (Shafahi et al., NeurIPS 2019)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from classwise.attacks.carried import Memory, Visit
from classwise.recipe import Among, Method
from classwise.slots import AttackStep, Slots
from classwise.spelling import Share
from classwise.types import Images, Labels

BATCH = "offset"  # the perturbation by place in the batch


@dataclass(frozen=True, slots=True)
class SharedGradient:
    """m steps of the weights per batch; each one's gradient also moves δ ← clip(δ + α·sign ∇ₓL).

    δ belongs to a place in the batch, not to an image: the next batch begins where this one ends,
    each sample within its own radius.
    """

    replays: int  # m
    shared: bool = field(default=True, repr=False)
    by_image: bool = field(default=False, repr=False)

    def begin(self, index: Labels) -> dict[str, Tensor]:  # noqa: ARG002
        """No perturbation yet."""
        return {}

    def recall(self, visit: Visit, memory: Memory) -> Tensor:
        """What the batch before left behind, shortened to the radius of who stands there now."""
        images = visit.batch.images
        past = memory.get(BATCH, images[:0])[: len(images)].to(images)
        nothing = torch.full_like(images[len(past) :], torch.nan)
        return visit.ball.shorten(torch.cat([past, nothing]), visit.radius)

    def keep(self, visit: Visit, robust: Images, memory: Memory) -> dict[str, Tensor]:
        """Climb with the gradient that has just moved the weights."""
        assert robust.grad is not None
        past = self.recall(visit, memory)
        here = torch.where(past.isnan(), robust.detach() - visit.batch.images, past)
        climbed = here + visit.ball.uphill(robust.grad, visit.step)
        moved = visit.ball.shorten(climbed, visit.radius)
        beyond = memory.get(BATCH, moved[:0])[len(moved) :]  # a short last batch leaves the rest
        return {BATCH: torch.cat([moved, beyond.to(moved)])}


class Free(Method):
    """Replay each batch m times, and move weights and perturbation with one and the same gradient.

    There is no attack of its own: a step costs no more than one of clean training. An epoch is
    worth m, so train for fewer of them. Alone it brings AT; on TRADES and MART δ climbs their loss.
    """

    name: ClassVar[str] = "free"
    paper: ClassVar[str] = "Shafahi et al., NeurIPS 2019"
    extends: ClassVar[frozenset[str]] = frozenset({"at", "trades", "mart"})
    implies: ClassVar[str | None] = "at"

    replays: Annotated[int, Field(ge=1)] = 8  # m
    step: AttackStep = Share(1)  # α, a number or a share of eps
    start: Literal["zero", "gaussian"] | None = None  # of the first δ; None: gaussian on TRADES

    def resolve(self, among: Among) -> Method:
        """Choose the first δ; refuse options of the base's attack, which is not made here."""
        among.check_left(self.name, ("steps", "step", "start", "batchnorm"))
        # At δ = 0 TRADES' loss has no slope in δ: rounding would choose the direction.
        start = self.start or among.first({"trades": "gaussian"}, "zero")
        return self.model_copy(update={"start": start})

    def fill(self) -> Slots:
        """Fill where the attack begins, which is where it ends."""
        return Slots(
            start="gaussian" if self.start == "gaussian" else "none",
            steps=0,
            step=self.step,
            carry=SharedGradient(self.replays),
        )
