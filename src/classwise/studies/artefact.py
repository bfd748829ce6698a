"""What a study makes of its runs: a table with holes, notes, and the data of a picture."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, field_validator

from classwise.errors import ClasswiseError
from classwise.statistics.worst_class import OverSeeds, over_seeds
from classwise.studies.found import Found

PERCENT = "%"  # rates in [0, 1] that are printed in per cent
POINTS = "points"  # differences of rates, printed in points of a per cent with their sign


def settled(number: float) -> float:
    """A number without its last digits, which differ from one processor to the next.

    Else a half, such as 1.35 points, is printed as 1.3 here and as 1.4 there.

    >>> settled(0.1 + 0.2), settled(-1.3499999999999996)
    (0.3, -1.35)
    """
    return float(f"{number:.12g}")


class ArtefactOptions(BaseModel):
    """What every kind of artefact may be told; each kind adds its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    title: str
    name: str = ""  # of its files; made of the title where nothing is said
    where: dict[str, str | tuple[str, ...]] = {}  # labels of the runs it is about; all without
    note: str = ""  # one more line under it

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        if name and not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
            raise ClasswiseError(f"{name!r} is no plain name for a file; use a-z, 0-9 and -")
        return name

    @property
    def file_name(self) -> str:
        """The name of its files, without an ending.

        >>> ArtefactOptions(kind="table", title="Table 1 (last)").file_name
        'table-1-last'
        """
        return self.name or re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or self.kind


@dataclass(frozen=True)
class Cell:
    """A number over seeds, or a hole, or words.

    Numbers and a hole together say that some seeds have no number.
    """

    rates: tuple[float, ...] = ()  # one per seed, in [0, 1], or any number with another unit
    words: str = ""  # beside the number, such as the name of a class; alone: the text
    interval: tuple[float, float] | None = None
    paper: float | None = None  # the paper's own number, in the unit as printed
    doubtful: str = ""  # why the paper's number is not to be relied on
    hole: str = ""  # why there is no number
    unit: str = PERCENT  # or POINTS; with any other, numbers are printed as they are

    def __post_init__(self) -> None:
        if any(not math.isfinite(rate) for rate in self.rates):
            raise ClasswiseError(f"a cell holds {self.rates}; leave out what has no number")
        if not (self.rates or self.words or self.hole):
            raise ClasswiseError("a cell has neither number, words nor the reason of a hole")

    @property
    def over(self) -> OverSeeds | None:
        """Mean and sample deviation over seeds, with their number; None without a number."""
        return over_seeds(self.rates) if self.rates else None

    @property
    def mean(self) -> float | None:
        """Over seeds; None without a number."""
        return None if self.over is None else self.over.mean


@dataclass(frozen=True)
class Series:
    """One line, set of bars or cloud of points of a picture; a y of None is a gap."""

    name: str
    x: tuple[float, ...] | tuple[str, ...]  # numbers, or names of places side by side
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] | None = None  # ends of intervals, drawn as bands or whiskers
    high: tuple[float | None, ...] | None = None
    dashed: bool = False  # a line that is not ours, such as the paper's

    def __post_init__(self) -> None:
        parts = [part for part in (self.y, self.low, self.high) if part is not None]
        if any(len(part) != len(self.x) for part in parts):
            sizes = [len(part) for part in parts]
            raise ClasswiseError(f"{self.name!r} has {len(self.x)} places, but {sizes} values")


@dataclass(frozen=True)
class Figure:
    """The data of a picture; `drawing.draw` is the one function that draws it.

    Of a `heat`, each series is a row of the map: its name, its columns `x`, its values `y`.
    """

    kind: Literal["lines", "bars", "points", "heat"]
    x_title: str
    y_title: str
    series: tuple[Series, ...] = ()
    title: str = ""
    panels: tuple[Figure, ...] = ()  # side by side, each a picture of its own, instead of series
    unit: str = PERCENT  # or POINTS; with any other, numbers are drawn as they are
    log_x: bool = False
    level: float | None = None  # a horizontal line to compare with, such as chance


@dataclass(frozen=True)
class Artefact:
    """A table, its notes and perhaps a picture; all that is written of it comes from here."""

    name: str  # of its files, such as table-1
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()  # scale, seeds, attack and radius, what was left out
    figure: Figure | None = None

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.head):
                raise ClasswiseError(
                    f"{self.title!r} has {len(self.head)} columns, but a row of {len(row)} cells"
                )


@dataclass(frozen=True)
class Kind:
    """A kind of artefact: what it may be told, and the pure function that makes it."""

    options: type[ArtefactOptions]
    make: Callable[[Found, Any], Artefact]  # Any: each takes its own options
    shows_theirs: bool = False  # networks of other people beside the runs
