"""Passive weight averages."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor, nn

from classwise.recipe import Average, epoch_of


@dataclass(frozen=True, slots=True)
class RunningAverage:
    """An average and its weights; None until it first opens, so nobody audits random weights."""

    rule: Average
    weights: dict[str, Tensor] | None = None

    def update(self, model: nn.Module, epoch: int, epochs: int) -> RunningAverage:
        """Take in the weights after `epoch` finished epochs; the first opening copies them."""
        if epoch < max(1, epoch_of(self.rule.start, epochs)):
            return self
        live = model.state_dict()
        if self.weights is None:
            return replace(self, weights={name: value.clone() for name, value in live.items()})
        decay = self.rule.decay
        mixed = {
            name: old.lerp(live[name], 1 - decay) if old.is_floating_point() else live[name].clone()
            for name, old in self.weights.items()
        }
        return replace(self, weights=mixed)
