"""Which class was the worst in every epoch of a training, and when that settled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from classwise.errors import ClasswiseError
from classwise.training.run import Run


@dataclass(frozen=True)
class WorstOverEpochs:
    """The worst class of each epoch that was looked at; the first one where several are equal.

    There are no intervals: a history keeps rates, not counts. On a small validation part the worst
    class also changes by chance.
    """

    series: str  # what was looked at, such as `watched, test:pgd-20` or `validation, pgd-10`
    epochs: tuple[int, ...]
    worst: tuple[str, ...]
    rates: tuple[float, ...]

    @property
    def changes(self) -> int:
        """How often the worst class was another one than at the look before."""
        return sum(a != b for a, b in zip(self.worst, self.worst[1:], strict=False))

    @property
    def shares(self) -> dict[str, float]:
        """The share of the looks at which each class was the worst, the most frequent first."""
        counts = Counter(self.worst)
        return {name: count / len(self.worst) for name, count in counts.most_common()}

    @property
    def settled(self) -> int:
        """The epoch from which on the worst class stayed what it is at the end."""
        place = len(self.worst)
        while place and self.worst[place - 1] == self.worst[-1]:
            place -= 1
        return self.epochs[place]

    @property
    def words(self) -> str:
        """One sentence."""
        said = ", ".join(f"{name} {100 * share:.0f} %" for name, share in self.shares.items())
        many = "once" if self.changes == 1 else f"{self.changes} times"
        changed = f"changed {many}" if self.changes else "never changed"
        return (
            f"{self.series}: the worst class {changed} in {len(self.epochs)} looks ({said}); "
            f"{self.worst[-1]} from epoch {self.settled} on"
        )


def worst_over_epochs(
    path: Path, condition: str, class_names: Sequence[str]
) -> WorstOverEpochs | None:
    """Read the training of a run; None where it has none, or none that can be read.

    What was watched on test images under the very condition comes first, then validation under
    attack (or clean, if that is asked for).
    """
    try:
        run = Run(path)
        if not run.begun:
            return None
        series = _watched(run.looks, condition) or _validated(run.history, condition)
    except ClasswiseError:  # the audits are whole, and a report says so of the history
        return None
    if series is None:
        return None
    title, looks = series
    epochs, worst, lowest = [], [], []
    for epoch, rates in looks:
        values = np.array([np.nan if rate is None else rate for rate in rates], float)
        if len(values) == len(class_names) and not np.isnan(values).all():
            epochs.append(epoch)
            worst.append(class_names[int(np.nanargmin(values))])
            lowest.append(float(np.nanmin(values)))
    return WorstOverEpochs(title, tuple(epochs), tuple(worst), tuple(lowest)) if epochs else None


Looks = list[tuple[int, list[float | None]]]


def _watched(looks: Sequence[Mapping[str, Any]], condition: str) -> tuple[str, Looks] | None:
    name = f"test:{condition}"
    found = [(one["epoch"], one[name]["by_class"]) for one in looks if name in one]
    return (f"watched, {name}", found) if found else None


def _validated(history: Sequence[Mapping[str, Any]], condition: str) -> tuple[str, Looks] | None:
    if not history:
        return None
    there = history[-1]["valid"].get("live", {})
    attacks = [name for name in there if name != "clean"]
    name = condition if condition in there else next(iter(attacks), "")
    if not name or (condition == "clean" and name != "clean"):
        return None
    found = [
        (one["epoch"], one["valid"]["live"][name]["by_class"])
        for one in history
        if name in one["valid"].get("live", {})
    ]
    return (f"validation, {name}", found) if found else None
