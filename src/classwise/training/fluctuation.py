"""How much each class swings from one epoch to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from classwise.errors import ClasswiseError

Rates: TypeAlias = Mapping[str, Any]  # `overall` and `by_class`, as `ClassCounts.rates` gives them


def fluctuation(before: Rates, now: Rates) -> dict[str, Any]:
    """|A_k(e) − A_k(e−1)| of every class, and |min_k A_k(e) − min_k A_k(e−1)| as `worst`.

    The worst class may be another one in each epoch. None marks what has no samples.

    >>> found = fluctuation({"by_class": [0.5, 0.25, None]}, {"by_class": [0.125, 0.75, None]})
    >>> found["worst"], found["by_class"]
    (0.125, [0.375, 0.5, None])
    """
    pairs = list(zip(before["by_class"], now["by_class"], strict=True))
    seen = [pair for pair in pairs if None not in pair]
    return {
        "worst": abs(min(new for _, new in seen) - min(old for old, _ in seen)) if seen else None,
        "by_class": [None if None in pair else abs(pair[1] - pair[0]) for pair in pairs],
    }


def fluctuations(
    previous: Mapping[str, Any] | None, record: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """What the validation statistics of two records in a row have in common, for every weights."""
    if previous is None or previous["epoch"] != record["epoch"] - 1:
        return {}
    return {
        weights: {
            attack: fluctuation(previous["valid"][weights][attack], rates)
            for attack, rates in conditions.items()
            if attack in previous["valid"][weights]
        }
        for weights, conditions in record["valid"].items()
        if weights in previous["valid"]
    }


def mean_fluctuation(rates: Mapping[int, Rates], last: int) -> dict[str, Any]:
    """Mean over the last `last` epochs of how much they differ from the epoch before each.

    `rates` are by epoch. All these epochs, and the one before them, must be there.

    >>> rates = {e: {"by_class": [a, 1.0]} for e, a in ((1, 0.0), (2, 0.5), (3, 0.25))}
    >>> mean_fluctuation(rates, 2)
    {'worst': 0.375, 'by_class': [0.375, 0.0]}
    """
    final = max(rates, default=0)
    wanted = range(final - last + 1, final + 1)
    if last < 1 or not all({epoch - 1, epoch} <= set(rates) for epoch in wanted):
        raise ClasswiseError(
            f"fluctuation over the last {last} epochs needs these and the one before them, each "
            f"looked at; there are {_spans(sorted(rates))}: give a smaller number, 1 at the least"
        )
    found = [fluctuation(rates[epoch - 1], rates[epoch]) for epoch in wanted]
    classes = zip(*(one["by_class"] for one in found), strict=True)
    return {
        "worst": _mean([one["worst"] for one in found]),
        "by_class": [_mean(values) for values in classes],
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _spans(epochs: Sequence[int]) -> str:
    """Say which epochs there are, in few words."""
    if not epochs:
        return "none"
    whole = len(epochs) == epochs[-1] - epochs[0] + 1
    return f"{len(epochs)} {'from' if whole else 'between'} {epochs[0]} to {epochs[-1]}"
