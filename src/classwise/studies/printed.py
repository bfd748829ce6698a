"""Numbers of artefacts that a claim is about, found by the words of their column and row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from scipy import stats

from classwise.studies.artefact import PERCENT, POINTS, Artefact, Cell
from classwise.studies.found import Hole
from classwise.studies.papers.claims import Claim


class Printed(NamedTuple):
    """A cell in the unit of claims; without an interval nothing follows from it."""

    words: str
    value: float
    low: float
    high: float
    seeds: int  # 0: closed forms, no chance in it


def printed_cells(claim: Claim, artefacts: Sequence[Artefact]) -> list[Printed]:
    """The cells whose column and row fit the claim's patterns; a `Hole` where there is none."""
    found, holes = [], []
    for words, cell in _fitting(claim, artefacts):
        try:
            found.append(_read(words, cell, claim))
        except Hole as reason:
            holes.append(str(reason))
    if holes:
        raise Hole(holes[0])
    if not found:
        raise Hole(f"no artefact of the study has {claim.measure!r} for {claim.other!r}")
    return found


def _fitting(claim: Claim, artefacts: Sequence[Artefact]) -> Iterator[tuple[str, Cell]]:
    for artefact in artefacts:
        columns = [n for n, head in enumerate(artefact.head) if fnmatchcase(head, claim.measure)]
        for row in artefact.rows:
            name = _name(row)
            if columns and fnmatchcase(name, claim.other):
                yield from ((name, row[column]) for column in columns)


def _name(row: Sequence[Cell]) -> str:
    """The words that a row begins with."""
    words = []
    for cell in row:
        if cell.rates or not cell.words:
            break
        words.append(cell.words)
    return ", ".join(words)


def _read(name: str, cell: Cell, claim: Claim) -> Printed:
    if not cell.rates:
        return _told(name, cell, claim)
    if cell.hole:
        raise Hole(cell.hole)
    scale = 100.0 if cell.unit in (PERCENT, POINTS) else 1.0
    count, over = len(cell.rates), cell.over
    assert over is not None
    if count == 1:
        low, high = cell.interval or (-math.inf, math.inf)
    else:  # seeds alone: images have no part in what a cell keeps
        half = float(stats.t.ppf(0.975, count - 1)) * over.deviation / math.sqrt(count)
        low, high = over.mean - half, over.mean + half
    return Printed(name, scale * over.mean, scale * low, scale * high, count)


def _told(name: str, cell: Cell, claim: Claim) -> Printed:
    """Words instead of a number: what holds in every case has 0 failures, anything else has 1."""
    if cell.hole or not claim.condition:
        raise Hole(cell.hole or f"{claim.measure!r} for {name!r} is no number")
    failed = 0.0 if fnmatchcase(cell.words, claim.condition) else 1.0
    return Printed(name, failed, failed, failed, 0)
