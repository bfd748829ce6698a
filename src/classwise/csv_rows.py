"""Tables of comma-separated values that people write: read line by line, refused by the line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from classwise.errors import ClasswiseError

MOST_CSV_BYTES = 256 * 2**20
MOST_COLUMNS = 100


def csv_rows(path: Path, what: str) -> Iterator[tuple[int, list[str]]]:
    """Lines that are not blank, each with its number; `what` it is that is read."""
    try:
        if path.stat().st_size > MOST_CSV_BYTES:
            raise ClasswiseError(f"{path} is larger than {MOST_CSV_BYTES >> 20} MB; no {what}")
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream, strict=True)
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
    except OSError as reason:
        raise ClasswiseError(f"cannot read {path}: {reason.strerror}") from None
    except UnicodeDecodeError:
        raise ClasswiseError(f"{path} is not text in UTF-8; save it as CSV, UTF-8") from None
    except csv.Error as reason:
        raise bad_line(path, reader.line_num, f"is not CSV: {reason}") from None


def csv_heads(path: Path, cells: Sequence[str], needed: Sequence[str], words: str) -> list[str]:
    """The names of the columns: those that are needed among them, every one once."""
    heads = [" ".join(cell.split()) for cell in cells]
    if any(heads.count(name) != 1 for name in needed):
        raise bad_line(path, 1, words)
    if len(heads) > MOST_COLUMNS:
        raise bad_line(path, 1, f"names {len(heads)} columns; {MOST_COLUMNS} are the most")
    for head in heads:
        if not head or heads.count(head) > 1:
            raise bad_line(path, 1, f"must name every column, and differently; got {head!r}")
    return heads


def bad_line(path: Path, line: int, words: str) -> ClasswiseError:
    """What is wrong with a line."""
    return ClasswiseError(f"{path}: line {line} {words}")
