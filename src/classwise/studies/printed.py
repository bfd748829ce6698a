"""Numbers of artefacts that a claim is about, found by the words of their column and row."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from scipy import stats

from classwise.studies.artefact import PERCENT, POINTS, Artefact, Cell
from classwise.studies.found import Hole
from classwise.studies.papers.claims import Claim


class Printed(NamedTuple):
    """A cell in the unit of claims, with an interval over seeds that holds the cell's own."""

    words: str
    value: float
    low: float
    high: float
    seeds: int  # 0: closed forms, no chance in it


def printed_cells(claim: Claim, artefacts: Sequence[Artefact]) -> list[Printed]:
    """The cells whose column and row fit the claim's patterns; a `Hole` where none has a number.

    Where a row is to be taken off, a `*` stands for the same words in both patterns.
    """
    found, holes = [], []
    for words, cell in _wanted(claim, artefacts):
        try:
            found.append(_read(words, cell, claim))
        except Hole as reason:
            holes.append(str(reason))
    if not found:
        none = f"no artefact of the study has {claim.measure!r} for {' or '.join(claim.rows)!r}"
        raise Hole(holes[0] if holes else none)
    return found


def _wanted(claim: Claim, artefacts: Sequence[Artefact]) -> Iterator[tuple[str, Cell]]:
    taken_off = {stars: cell for _, stars, cell in _fitting(claim.less, claim, artefacts)}
    for pattern in claim.rows:
        for name, stars, cell in _fitting(pattern, claim, artefacts):
            if not claim.less:
                yield name, cell
            elif stars in taken_off:
                yield name, _less(cell, taken_off[stars])


def _fitting(
    pattern: str, claim: Claim, artefacts: Sequence[Artefact]
) -> Iterator[tuple[str, tuple[str, ...], Cell]]:
    """Cells of rows that fit, with their rows' words and what each `*` stands for there."""
    wanted, _, column_pattern = claim.measure.partition(": ")
    stars = re.compile(re.escape(pattern).replace(r"\*", "(.*)"))
    for artefact in artefacts:
        if not fnmatchcase(artefact.name, wanted):
            continue
        for column, head in enumerate(artefact.head):
            for row in artefact.rows if fnmatchcase(head, column_pattern) else ():
                name = _name(row[:column])
                match = stars.fullmatch(name)
                if match:
                    yield name, match.groups(), row[column]


def _name(cells: Sequence[Cell]) -> str:
    """The words that a row begins with."""
    words = []
    for cell in cells:
        if cell.rates or not cell.words:
            break
        words.append(cell.words)
    return ", ".join(words)


def _less(one: Cell, other: Cell) -> Cell:
    """Two cells of the same seeds, seed by seed."""
    if one.hole or other.hole or len(one.rates) != len(other.rates):
        return Cell(hole=one.hole or other.hole or "not the same seeds on both sides")
    rates = tuple(a - b for a, b in zip(one.rates, other.rates, strict=True))
    return Cell(rates, unit=one.unit) if rates else Cell(hole="no number")


def _read(name: str, cell: Cell, claim: Claim) -> Printed:
    if not cell.rates:
        return _told(name, cell, claim)
    if cell.hole:
        raise Hole(cell.hole)
    scale = 100.0 if cell.unit in (PERCENT, POINTS) else 1.0
    count, over = len(cell.rates), cell.over
    assert over is not None
    low, high = cell.interval or (over.mean, over.mean)
    if count > 1:
        half = float(stats.t.ppf(0.975, count - 1)) * over.deviation / math.sqrt(count)
        low, high = min(low, over.mean - half), max(high, over.mean + half)
    return Printed(name, scale * over.mean, scale * low, scale * high, count)


def _told(name: str, cell: Cell, claim: Claim) -> Printed:
    """Words instead of a number: what holds in every case has 0 failures, anything else has 1."""
    if cell.hole or not claim.condition:
        raise Hole(cell.hole or f"{claim.measure!r} for {name!r} is no number")
    failed = 0.0 if fnmatchcase(cell.words, claim.condition) else 1.0
    return Printed(name, failed, failed, failed, 0)
