"""Passive weight averages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from classwise.classes.counts import ClassCounts
from classwise.slots import Average, Gate
from classwise.stages import epoch_of


@dataclass(frozen=True, slots=True)
class RunningAverage:
    """An average and its weights; None until it first opens, so nobody audits random weights."""

    rule: Average
    weights: dict[str, Tensor] | None = None
    taken: int = 0  # epochs it took in
    best: float | None = None  # the highest value its gate saw; None before the first

    def update(
        self, model: nn.Module, epoch: int, epochs: int, valid: ClassCounts | None
    ) -> RunningAverage:
        """See an epoch, and take in its weights if the average has begun and its gate is open.

        The gate remembers the best of all epochs, also of those before the average begins.
        """
        gate = self.rule.gate
        if gate is None:
            return self if epoch < self.first_epoch(epochs) else self._take_in(model)
        if valid is None:
            return self  # a gate without validation data stays shut
        value = gate.value(valid)
        best = value if self.best is None else max(self.best, value)
        seen = replace(self, best=best)
        is_open = epoch >= self.first_epoch(epochs) and gate.opens(value, best)
        return seen._take_in(model) if is_open else seen

    def first_epoch(self, epochs: int) -> int:
        """Finished epochs from which on it takes weights in."""
        return max(1, epoch_of(self.rule.start, epochs))

    def _take_in(self, model: nn.Module) -> RunningAverage:
        """Average with the live weights; the first opening copies them."""
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


def shut_gates(
    averages: Sequence[RunningAverage], epoch: int, epochs: int
) -> Iterator[tuple[str, str]]:
    """Averages that took nothing in by half of the run, each with words for the reader."""
    for average in averages:
        gate = average.rule.gate
        if gate is None or average.taken or epoch < max(epochs / 2, average.first_epoch(epochs)):
            continue
        best = 100 * (average.best or 0.0)
        if isinstance(gate, Gate):
            who = "class" if gate.on == "worst" else "10 % of the classes"
            why = (
                f"the worst {who} reached {best:.1f} % on validation data at best, and the "
                f"threshold is {100 * gate.threshold:g} %; use gate=share, or a lower threshold"
            )
        elif best > 0:
            why = (
                f"the worst classes reached {best:.1f} % on validation data before it began, and "
                f"no epoch since has come to {gate.share:g} of that; use a lower share"
            )
        else:
            why = (
                "the worst classes have not come above 0 % on validation data; train longer, or "
                "hold out more images, as with valid=0.1"
            )
        name = average.rule.name
        yield name, f"{name} is still shut after {epoch} of {epochs} epochs: {why}"
