"""Loss scaling: in float16 small gradients would vanish, so the loss is multiplied first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from classwise.errors import ClasswiseError
from classwise.slots import Slots

SCALE = "loss scale"  # its name among the memories of a run
FIRST, PATIENCE = 2.0**12, 2000  # the first factor, and steps without an overflow until it doubles
IN_ATTACKS = 2.0**8  # signs and directions are the same for any factor


def check_scaling(precision: str, slots: Slots) -> None:
    """Refuse float16 where gradients are taken past the scaled loss."""
    shared = slots.carry is not None and slots.carry.shared
    if precision == "float16" and (slots.step_rule is not None or shared):
        raise ClasswiseError(
            "precision=float16 scales the loss, but this recipe takes gradients of its own for "
            "each step (as awp and free do); use bfloat16, or float32"
        )


def first_scale() -> dict[str, Tensor]:
    """Memory before the first step."""
    return {"factor": torch.tensor(FIRST), "good": torch.tensor(0)}


class LossScale:
    """The factor of a step: halved where a gradient overflowed, doubled after many good steps."""

    def __init__(self, memory: Mapping[str, Tensor] | None) -> None:
        self.memory = None if memory is None else dict(memory)

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss to go back from."""
        return loss if self.memory is None else loss * self.memory["factor"].to(loss)

    def unscale(self, weights: Iterable[nn.Parameter]) -> bool:
        """Take the factor out of the gradients; whether the step may be taken."""
        if self.memory is None:
            return True
        slopes = [weight.grad for weight in weights if weight.grad is not None]
        factor, good = self.memory["factor"], int(self.memory["good"])
        for slope in slopes:
            slope.div_(factor.to(slope))
        # The one number that must be waited for: whether there is a step at all.
        finite = bool(torch.stack([torch.isfinite(slope).all() for slope in slopes]).all())
        good = good + 1 if finite else 0
        grown = 2.0 if good == PATIENCE else 1.0 if finite else 0.5
        self.memory = {
            "factor": factor * grown,
            "good": torch.tensor(0 if good == PATIENCE else good),
        }
        return finite
