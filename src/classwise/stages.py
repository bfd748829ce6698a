"""When things happen in a run, in epochs or fractions of it, and values that change on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Schedule: TypeAlias = tuple[tuple[float, int], ...]  # (from this epoch or fraction on, value)


def epoch_of(when: float, epochs: int) -> int:
    """Turn a "when" into an epoch: below 1 it is a fraction of the run.

    >>> epoch_of(0.25, 200), epoch_of(50, 200), epoch_of(0, 30)
    (50, 50, 0)
    """
    return round(when * epochs) if when < 1 else int(when)


def read_schedule(value: Any) -> Any:
    """Sort the steps of a schedule; a plain number passes through.

    >>> read_schedule({0.5: 1, 0: 0})
    ((0.0, 0), (0.5, 1))
    """
    if not isinstance(value, Mapping | list | tuple):
        return value
    pairs = value.items() if isinstance(value, Mapping) else value
    try:
        steps = sorted((float(when), step) for when, step in pairs)
    except (TypeError, ValueError):
        raise ValueError("write a number, or steps such as {0: 0, 0.5: 1}") from None
    if not steps or steps[0][0] != 0:
        raise ValueError("a schedule begins with epoch 0, as in {0: 0, 0.5: 1}")
    if any(type(step) is not int or step < 0 for _, step in steps):
        raise ValueError("every step of a schedule must be a whole number from 0 up")
    return tuple(steps)


def value_at(schedule: int | Schedule, epoch: int, epochs: int) -> int:
    """What a schedule says in an epoch, counted from 0; a number says the same in all.

    >>> [value_at(((0, 1), (0.5, 3)), epoch, 4) for epoch in range(4)]
    [1, 1, 3, 3]
    """
    if isinstance(schedule, int):
        return schedule
    return [value for when, value in schedule if epoch_of(when, epochs) <= epoch][-1]


def largest(schedule: int | Schedule) -> int:
    """The highest value that a schedule ever has."""
    return schedule if isinstance(schedule, int) else max(value for _, value in schedule)
