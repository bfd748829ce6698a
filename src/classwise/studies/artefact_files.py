"""The files of an artefact: a Markdown table, a CSV with one line per cell, a picture."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from classwise.files import write_atomically
from classwise.report.escaping import csv_cell, markdown_text
from classwise.studies.artefact import PERCENT, POINTS, Artefact, Cell, settled
from classwise.studies.drawing import NO_PICTURES, can_draw, draw

COLUMNS = (
    *("row", "column", "mean", "deviation", "seeds", "each_seed", "low", "high", "unit"),
    *("words", "paper_as_printed", "doubtful", "hole", "scale"),
)
NOTHING = "–"


def write_artefact(artefact: Artefact, scale: str, folder: Path) -> list[Path]:
    """Write NAME.md, NAME.csv and, where there is a picture and matplotlib, NAME.svg."""
    files = {".csv": csv_text(artefact, scale).encode()}
    drawn = artefact.figure is not None and can_draw()
    if artefact.figure is not None and drawn:
        title = f"{artefact.title} (scale {scale})"
        files[".svg"] = draw(artefact.figure, title)
    files[".md"] = markdown(artefact, picture=drawn).encode()
    paths = {folder / f"{artefact.name}{ending}": content for ending, content in files.items()}
    for path, content in paths.items():
        write_atomically(path, content)
    return list(paths)


def markdown(artefact: Artefact, *, picture: bool = True, depth: int = 2) -> str:
    """The artefact as a section of a page; `picture` says whether NAME.svg stands beside it."""
    footnotes = Footnotes()
    seeds = {len(cell.rates) for row in artefact.rows for cell in row if cell.rates}
    lines = [f"{'#' * depth} {markdown_text(artefact.title)}", ""]
    if artefact.figure is not None:
        file = f"![{markdown_text(artefact.title)}]({artefact.name}.svg)"
        lines += [file if picture else f"{NO_PICTURES} {artefact.name}.csv.", ""]
    lines.append(_line([markdown_text(head) for head in artefact.head]))
    lines.append(_line(["---", *["---:"] * (len(artefact.head) - 1)]))
    for row in artefact.rows:
        lines.append(_line([cell_words(cell, footnotes, max(seeds, default=1)) for cell in row]))
    notes = [*_reading(artefact, seeds), *artefact.notes]
    lines += ["", *(f"- {markdown_text(note)}" for note in notes)]
    lines += [f"- [{number}] {markdown_text(why)}" for why, number in footnotes.numbers.items()]
    return "\n".join([*lines, ""])


class Footnotes:
    """Reasons that several cells share, each with its number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def mark(self, reason: str) -> str:
        """The number of a reason, as it stands in a cell."""
        number = self.numbers.setdefault(reason, len(self.numbers) + 1)
        return f"[{number}]"


def cell_words(cell: Cell, footnotes: Footnotes, seeds: int = 1) -> str:
    """One cell in Markdown; holes, and why a paper's number is doubtful, are footnotes.

    >>> notes = Footnotes()
    >>> cell_words(Cell((0.5, 0.52), words="cat 2/2", paper=51.3), notes, 2)
    '51.0 ± 1.4 (cat 2/2) · paper 51.3'
    >>> cell_words(Cell(hole="not run yet", paper=3), notes), list(notes.numbers)
    ('– [1] · paper 3.0', ['not run yet'])
    """
    words = markdown_text(cell.words)
    if cell.over is None:
        parts = [words or NOTHING]
    else:
        parts = [_number(cell)]
        few = [f"n = {len(cell.rates)}"] if len(cell.rates) < seeds else []
        beside = [word for word in (words, *few) if word]
        parts += [f"({', '.join(beside)})"] if beside else []
    if cell.hole:
        parts.append(footnotes.mark(cell.hole))
    if cell.paper is not None:
        doubt = f" {footnotes.mark(f'The paper: {cell.doubtful}')}" if cell.doubtful else ""
        parts.append(f"· paper {_as_printed(cell.paper)}{doubt}")
    return " ".join(parts)


def _as_printed(number: float) -> str:
    """A number of a paper: one digit, or as many as it has."""
    return f"{number:.1f}" if round(number, 1) == number else f"{number:g}"


def _number(cell: Cell) -> str:
    """Mean and deviation, or a single number and its interval."""
    over = cell.over
    assert over is not None
    if over.runs > 1:
        return f"{_printed(over.mean, cell.unit)} ± {_printed(over.deviation, cell.unit, sign='')}"
    span = ""
    if cell.interval is not None:
        low, high = (_printed(end, cell.unit) for end in cell.interval)
        span = f" [{low}, {high}]"
    return f"{_printed(over.mean, cell.unit)}{span}"


def _printed(number: float, unit: str, sign: str = "+") -> str:
    """A number in its unit.

    >>> _printed(0.4567, "%"), _printed(0.021, "points"), _printed(12.3456, "s"), _printed(3, "")
    ('45.7', '+2.1', '12.3 s', '3')
    """
    if unit == PERCENT:
        return f"{settled(100 * number):.1f}"
    if unit == POINTS:
        return f"{settled(100 * number):{sign}.1f}"
    return f"{number:.3g} {unit}".strip()


def _reading(artefact: Artefact, seeds: set[int]) -> list[str]:
    """How the numbers are to be read."""
    cells = [cell for row in artefact.rows for cell in row]
    lines = []
    if any(cell.unit == PERCENT and cell.rates for cell in cells):
        lines.append("Numbers are in per cent, unless a unit stands beside them.")
    if any(cell.unit == POINTS and cell.rates for cell in cells):
        lines.append("Differences are in percentage points.")
    if max(seeds, default=1) > 1:
        lines.append(f"A cell with fewer than {max(seeds)} seeds says how many it has (n).")
    if any(cell.interval is not None and len(cell.rates) == 1 for cell in cells):
        lines.append("[low, high]: 95 % interval over images, of one seed.")
    if any(cell.paper is not None for cell in cells):
        lines.append("“paper” is what the paper printed, at its own scale.")
    return lines


def csv_text(artefact: Artefact, scale: str) -> str:
    """One line per cell behind the words that name its row, numbers in full.

    Rates are stored in [0, 1]; only what the paper printed is as it printed it.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in artefact.rows:
        label, first = _row_label(row)
        for head, cell in list(zip(artefact.head, row, strict=True))[first:]:
            writer.writerow([csv_cell(value) for value in _csv_line(label, head, cell, scale)])
    return stream.getvalue()


def _row_label(row: tuple[Cell, ...]) -> tuple[str, int]:
    """What a row is called: the words it begins with; a row of words alone, by its first."""
    words = [not (cell.rates or cell.hole) for cell in row]
    first = words.index(False) if False in words else 1
    first = max(first, 1)
    return " / ".join(cell.words for cell in row[:first]), first


def _csv_line(label: str, head: str, cell: Cell, scale: str) -> list[object]:
    over = cell.over
    ends = ("", "") if cell.interval is None else map(settled, cell.interval)
    unit = {PERCENT: "rate", POINTS: "difference of rates"}.get(cell.unit, cell.unit)
    return [
        *(label, head),
        "" if over is None else settled(over.mean),
        settled(over.deviation) if over and over.runs > 1 else "",
        *(len(cell.rates), ";".join(repr(settled(rate)) for rate in cell.rates)),
        *(*ends, unit if over else ""),
        *(cell.words, "" if cell.paper is None else cell.paper, cell.doubtful, cell.hole, scale),
    ]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
