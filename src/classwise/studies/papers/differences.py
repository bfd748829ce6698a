"""The rule by which the differences of the papers' tables become claims.

`pairs.csv` says which row is held against which; every column of their table gives a claim. The
claims are listed in `differences.csv`, which `python -m classwise.studies.papers.differences`
prints anew; a test compares.
"""

from __future__ import annotations

import csv
import io
import math
import re
import sys
from collections.abc import Iterator
from importlib.resources import files

from classwise.studies.papers.cells import CellPlace, PaperCell, paper_cells

COLUMNS = (
    *("id", "paper", "section", "words", "study", "kind", "measure", "condition", "weights"),
    *("left", "right", "value", "sign", "bound", "doubtful"),
)
RUNS = 5  # behind each mean of Wei's table 1, the only one with deviations
NOUGHT = 1.0  # points: a difference that is printed as 0 says that there is none as large as this
SAID = {
    "average": "average",
    "worst": "worst class",
    "tail": "worst 10 % of classes",
    "best": "best class",
    "spread": "class deviation",
    "error": "error",
}


def difference_lines() -> Iterator[dict[str, str]]:
    """The claims, in the columns of the file."""
    text = files(__package__).joinpath("pairs.csv").read_text()
    for pair in csv.DictReader(text.splitlines()):
        here = {
            (place.table, place.row, place.column): cell
            for place, cell in paper_cells().items()
            if place.paper == pair["paper"]
        }
        for (table, row, column), left in here.items():
            right = here.get((pair["right_table"], pair["right"], column))
            if (table, row) == (pair["table"], pair["left"]) and right is not None:
                place = CellPlace(pair["paper"], table, row, column)
                yield _line(place, pair, left, right)


def _line(
    place: CellPlace, pair: dict[str, str], left: PaperCell, right: PaperCell
) -> dict[str, str]:
    base, tables = pair["right"], dict.fromkeys((place.table, pair["right_table"]))
    section = f"table{'s' if len(tables) > 1 else ''} {' and '.join(tables)}"
    column, value = place.column, round(left.value - right.value, 2)
    several = len({one.column.data for one in paper_cells() if one.paper == place.paper}) > 1
    where = f";data={column.data}" if several else ""
    sign = "~" if not value else "+" if value > 0 else "-"
    return {
        "id": _id(place, base, several),
        "paper": place.paper,
        "section": section,
        "words": _words(place, base, several),
        "study": pair["study"],
        "kind": "difference",
        "measure": column.measure,
        "condition": column.condition,
        "weights": column.weights,
        "left": f"row={place.row}{where}",
        "right": f"row={base}{where}",
        "value": f"{value:g}",
        "sign": sign,
        "bound": f"{NOUGHT:g}" if sign == "~" else "",
        "doubtful": _doubts(left, right, value),
    }


def _doubts(left: PaperCell, right: PaperCell, value: float) -> str:
    """What speaks against either cell, or against telling them apart."""
    found = list(dict.fromkeys(words for words in (left.doubtful, right.doubtful) if words))
    if left.deviation is not None and right.deviation is not None:
        error = math.hypot(left.deviation, right.deviation) / math.sqrt(RUNS)
        if abs(value) < 2 * error:
            found.append(f"within twice its own standard error over {RUNS} runs ({error:.2f})")
    return "; ".join(found)


def _words(place: CellPlace, base: str, several: bool) -> str:
    column = place.column
    data = f" on {column.data}" if several else ""
    weights = f", {column.weights} weights" if place.paper == "wei" and place.table == "1" else ""
    return f"{place.row} against {base}{data}: {SAID[column.measure]}, {column.condition}{weights}"


def _id(place: CellPlace, base: str, several: bool) -> str:
    column = place.column
    plain = (place.row, "over", base, *([column.data] if several else []))
    words = [*plain, column.weights, column.condition, column.measure]
    text = "-".join(words).replace("Adv+", "advplus").replace("%", "")
    return f"{place.paper}-t{place.table}-" + re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def difference_text() -> str:
    """The whole file."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(difference_lines())
    return out.getvalue()


if __name__ == "__main__":
    sys.stdout.write(difference_text())
