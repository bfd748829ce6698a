"""One number for every class and epoch of a run, and the parts of a run that are spoken of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import BeforeValidator, PlainSerializer

from classwise.errors import ClasswiseError, unknown
from classwise.statistics.intervals import Rates
from classwise.studies.found import Hole

OVERALL, WORST = "overall", "worst"
ALL = "all"  # every class


def classes_meant(classes: Sequence[str], known: Sequence[str]) -> list[str]:
    """The classes that are meant; `all` stays as it is where nobody knows them.

    >>> classes_meant(["overall", "all"], ["cat", "dog"]), classes_meant(["all"], [])
    (['overall', 'cat', 'dog'], ['all'])
    """
    found = list[str]()
    for name in classes:
        found += known if name == ALL and known else [name]
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Window:
    """A part of a run, as fractions of its epochs: 0.5 to 0.6 of 200 are epochs 101 to 120.

    >>> Window(0.5, 0.6).of(200), Window(0.9, 1.0).of(200)
    (range(101, 121), range(181, 201))
    """

    begin: float
    end: float

    def __post_init__(self) -> None:
        if not 0 <= self.begin < self.end <= 1:
            raise ClasswiseError(
                f"window {self.begin:g} to {self.end:g}: give two fractions of the run, the "
                "smaller first, such as [0.5, 0.6]"
            )

    def of(self, epochs: int, least: int = 1) -> range:
        """The epochs, counted from 1, of a run of so many.

        In a short run the window is widened to `least` epochs, behind it or, at the end of the
        run, before it.

        >>> Window(0.5, 0.6).of(2), Window(0.5, 0.6).of(12, 2), Window(0.9, 1.0).of(4, 2)
        (range(2, 3), range(7, 9), range(3, 5))
        """
        # 0.29·100 is a little less than 29 in floating point
        begin, end = (math.floor(round(share * epochs, 9)) for share in (self.begin, self.end))
        end = min(epochs, max(end, begin + least))
        return range(max(0, min(begin, end - least)) + 1, end + 1)

    def __str__(self) -> str:
        return f"{100 * self.begin:g} to {100 * self.end:g} % of the run"


def _window(given: object) -> Window:
    if isinstance(given, Window):
        return given
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise ClasswiseError(f"window {given!r}: give two fractions of the run, as in [0.5, 0.6]")
    return Window(float(given[0]), float(given[1]))


# An option that is written as two fractions.
WindowOption: TypeAlias = Annotated[
    Window, BeforeValidator(_window), PlainSerializer(lambda window: (window.begin, window.end))
]


@dataclass(frozen=True)
class OverEpochs:
    """One number for every class in each epoch that was looked at; nan marks what has none."""

    said: str  # what was looked at, as the record names it
    epochs: tuple[int, ...]
    rates: Rates  # epochs × classes
    overall: Rates  # over all samples
    class_names: tuple[str, ...]
    length: int  # epochs of the whole run

    @property
    def worst(self) -> Rates:
        """The lowest class of each epoch, whichever it is; nan where no class has a number."""
        lowest = np.where(np.isnan(self.rates), np.inf, self.rates).min(1, initial=np.inf)
        return np.where(np.isinf(lowest), np.nan, lowest)

    def line(self, name: str) -> Rates:
        """A class by its name, `overall` or `worst`."""
        if name in (OVERALL, WORST):
            return self.overall if name == OVERALL else self.worst
        return self.rates[:, self.place(name)]

    def place(self, name: str) -> int:
        """The number of a class."""
        if name not in self.class_names:
            raise unknown("class", name, (*self.class_names, OVERALL, WORST, ALL))
        return self.class_names.index(name)

    def within(self, window: Window, least: int = 1) -> OverEpochs:
        """The epochs of a window alone; it is a hole that none of them was looked at."""
        meant = window.of(self.length, least)
        chosen = [place for place, epoch in enumerate(self.epochs) if epoch in meant]
        if not chosen:
            raise Hole(f"{self.said}: no look in epochs {meant.start} to {meant.stop - 1}")
        epochs = tuple(self.epochs[place] for place in chosen)
        rates, overall = self.rates[chosen], self.overall[chosen]
        return OverEpochs(self.said, epochs, rates, overall, self.class_names, self.length)

    @property
    def by_epoch(self) -> dict[int, dict[str, Any]]:
        """As a history has it: `overall` and `by_class` by epoch."""
        known = [
            [None if math.isnan(rate) else rate for rate in row] for row in self.rates.tolist()
        ]
        pairs = zip(self.overall.tolist(), known, strict=True)
        found = ({"overall": overall, "by_class": row} for overall, row in pairs)
        return dict(zip(self.epochs, found, strict=True))


def gaps(values: Rates) -> tuple[float | None, ...]:
    """Numbers of a line, with None where there is none."""
    return tuple(None if math.isnan(value) else float(value) for value in values)
