"""Passive weight averages."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor, nn

from classwise.classes.counts import ClassCounts
from classwise.recipe import epoch_of
from classwise.slots import Average, Gate


@dataclass(frozen=True, slots=True)
class RunningAverage:
    """An average and its weights; None until it first opens, so nobody audits random weights."""

    rule: Average
    weights: dict[str, Tensor] | None = None
    taken: int = 0  # epochs it took in

    def update(
        self, model: nn.Module, epoch: int, epochs: int, valid: ClassCounts | None
    ) -> RunningAverage:
        """Take in the weights after `epoch` finished epochs; the first opening copies them."""
        if epoch < max(1, epoch_of(self.rule.start, epochs)):
            return self
        if self.rule.gate is not None and not is_open(self.rule.gate, valid):
            return self
        live = model.state_dict()
        taken = self.taken + 1
        if self.weights is None:
            copied = {name: value.clone() for name, value in live.items()}
            return replace(self, weights=copied, taken=taken)
        fresh = 1 / taken if self.rule.decay is None else 1 - self.rule.decay
        mixed = {
            name: old.lerp(live[name], fresh) if old.is_floating_point() else live[name].clone()
            for name, old in self.weights.items()
        }
        return replace(self, weights=mixed, taken=taken)


def is_open(gate: Gate, valid: ClassCounts | None) -> bool:
    """Whether validation robustness reaches the threshold; never without validation data."""
    if valid is None:
        return False
    return (valid.worst if gate.on == "worst" else valid.tail()) >= gate.threshold
