"""The numbers that the papers print, cell by cell, with what is known against some of them."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from classwise.errors import unknown
from classwise.papers import PAPERS
from classwise.spelling import average_and_keep


class PaperColumn(NamedTuple):
    """What a column of a table is about, in the words that our audits use.

    A `measure` is `average`, `worst`, `tail` (worst 10 % of classes), `best`, `spread` or `error`
    (1 − average); a `condition` is the paper's own, such as `clean`, `autoattack`, `fog` (a
    corruption, all severities together) or `corruptions` (all of them); `weights` are `last` or
    `best`. Without `data` the only data of the table are meant.
    """

    measure: str
    condition: str = "clean"
    weights: str = "last"
    data: str = ""


class PaperCell(NamedTuple):
    """A printed number in per cent, its deviation over runs if any, and what speaks against it."""

    value: float
    deviation: float | None = None
    doubtful: str = ""


class CellPlace(NamedTuple):
    """Where a cell stands."""

    paper: str
    table: str
    row: str
    column: PaperColumn


@cache
def paper_cells() -> dict[CellPlace, PaperCell]:
    """Every number of every table of results."""
    text = files(__package__).joinpath("tables", "cells.csv").read_text()
    found = {}
    for line in csv.DictReader(text.splitlines()):
        column = PaperColumn(line["measure"], line["condition"], line["weights"], line["data"])
        deviation = float(line["deviation"]) if line["deviation"] else None
        place = CellPlace(line["paper"], line["table"], line["row"], column)
        found[place] = PaperCell(float(line["value"]), deviation, line["doubtful"])
    return found


def paper_cell(paper: str, table: str, row: str, column: PaperColumn) -> PaperCell | None:
    """The paper's own number, or None where its table has no such cell.

    Weights of an average are those that the paper prints: `ema-best` is `best`.

    >>> paper_cell("wei", "1", "AT + CFA", PaperColumn("worst", "autoattack", "fawa-best"))
    PaperCell(value=24.4, deviation=0.3, doubtful='')
    >>> paper_cell("wei", "1", "AT + CFA", PaperColumn("best")) is None
    True
    """
    if paper not in PAPERS:
        raise unknown("paper", paper, PAPERS)
    weights = average_and_keep(column.weights)[1]
    known = [
        cell
        for place, cell in paper_cells().items()
        if (place.paper, place.table, place.row) == (paper, table, row)
        and place.column._replace(data="") == column._replace(weights=weights, data="")
        and (not column.data or place.column.data == column.data)
    ]
    return known[0] if len(known) == 1 else None
