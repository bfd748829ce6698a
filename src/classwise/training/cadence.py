"""How often a run is watched: as the user says, or as a share of its network passes allows.

It is worked out once, before the first epoch, and kept in run.json; a resumed run reads it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from classwise.attacks.names import parse_condition
from classwise.attacks.threat import Threat
from classwise.data.batches import Batches
from classwise.errors import ClasswiseError, cut
from classwise.slots import Slots
from classwise.training.average import RunningAverage
from classwise.training.config import TrainConfig
from classwise.training.passes import passes_of_look, passes_of_training

CARD = "watching"  # its entry in run.json


@dataclass(frozen=True, slots=True)
class Cadence:
    """After which epochs a run is watched; after its last one always."""

    every: int  # epochs
    share: float | None = None  # of the passes of training, at most; None: the user said how often

    def due(self, epoch: int, epochs: int) -> bool:
        """Whether this epoch, counted from 1, is watched.

        >>> [epoch for epoch in range(1, 8) if Cadence(3).due(epoch, 7)]
        [3, 6, 7]
        """
        return epoch % self.every == 0 or epoch == epochs

    @property
    def card(self) -> dict[str, Any]:
        """What run.json says of it: nothing where the user does."""
        return {} if self.share is None else {CARD: {"every": self.every, "share": self.share}}

    def kept_in(self, about: Mapping[str, Any]) -> Cadence:
        """The one with which the run began, as its run.json has it."""
        if self.share is None:
            return self
        card = about.get(CARD)
        found = card if isinstance(card, Mapping) else {}
        every, share = found.get("every"), found.get("share")
        if type(every) is not int or every < 1 or type(share) not in (int, float):
            raise ClasswiseError(
                f"run.json: {CARD} is {cut(repr(card), 50)}, not how often the run is watched, as "
                "in {'every': 3, 'share': 0.08}; restore it from a copy"
            )
        return Cadence(every, share)

    def words(self, config: TrainConfig) -> str:
        """What a person is told of it."""
        assert self.share is not None
        taken, limit = f"{100 * self.share:.3g} % of the passes of training", config.watch_share
        if self.exceeds(config):
            return (
                f"is watched once, after the last epoch: that alone takes {taken}, more than "
                f"watch_share={limit:g}; watch less, or set watch_every"
            )
        often = "after every epoch"
        if self.every > 1:
            often = f"every {self.every} epochs and after the last"
        return f"is watched {often}: at most {taken} (watch_share={limit:g})"

    def exceeds(self, config: TrainConfig) -> bool:
        """Whether even one look at the end is more than was allowed."""
        return self.share is not None and self.share > config.watch_share


def choose_cadence(
    config: TrainConfig, slots: Slots, sizes: Tensor, splits: Mapping[str, Batches]
) -> Cadence:
    """As often as the share of the passes of training allows.

    `sizes` says how many images of each class train, and `splits` hold those that are watched.
    """
    if config.watch_every is not None or not config.watch:
        return Cadence(config.watch_every or 1)
    epochs, threat = config.epochs, Threat.of(config.eps_of_judge, config.norm)
    rules = [RunningAverage(rule) for rule in slots.averages]
    begins = {"": 1} | {average.rule.name: average.first_epoch(epochs) for average in rules}
    looks = list[tuple[int, int]]()
    for one in config.watched:
        passes = passes_of_look(parse_condition(one.seen.attack, threat), len(sizes))
        looks.append((begins[one.average], len(splits[one.seen.split].labels) * passes))
    training = int(sizes.sum()) * passes_of_training(slots, epochs)
    for every in range(1, epochs + 1):
        share = _passes_of_all(looks, every, epochs) / training
        if share <= config.watch_share:
            break
    return Cadence(every, share)


def _passes_of_all(looks: Sequence[tuple[int, int]], every: int, epochs: int) -> int:
    """Passes of all looks of a run, each with the first epoch in which there is what it sees."""
    odd = epochs % every > 0  # the last epoch is watched out of turn
    return sum(
        passes * (epochs // every - (first - 1) // every + odd)
        for first, passes in looks
        if first <= epochs
    )
