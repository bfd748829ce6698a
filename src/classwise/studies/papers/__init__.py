"""What the papers' tables hold, written as recipes."""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import NamedTuple


class PaperRow(NamedTuple):
    """One row of a table of a paper, and the recipe that is that row."""

    paper: str
    table: str
    row: str
    recipe: str
    data: str
    model: str


def paper_rows() -> list[PaperRow]:
    """Every row of every table of the five papers.

    >>> {row.recipe for row in paper_rows() if row.row == "FAIR-TAT + CFA"}
    {'at+cfa+fairtat'}
    """
    text = files(__name__).joinpath("rows.csv").read_text()
    return [PaperRow(**row) for row in csv.DictReader(text.splitlines())]
