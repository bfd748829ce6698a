"""Files of JSON lines, one per epoch, each with its checksum and the epoch of the line before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from classwise.errors import ClasswiseError
from classwise.limits import MOST_LOG_BYTES
from classwise.sealed import Damaged, seal, unseal
from classwise.texts import read_some

AFTER = "after"  # lines of older versions do not say it


def line_of(record: Mapping[str, Any], after: int) -> bytes:
    """One record as it stands in the file, after the line of another epoch (0: it is the first)."""
    return (json.dumps(seal({**record, AFTER: after})) + "\n").encode()


def parse_lines(content: bytes) -> tuple[list[dict[str, Any]], str]:
    r"""Records up to the first damaged line, and what is wrong with that one.

    What stands after the last line's end was torn by a crash and is passed over.

    >>> parse_lines(b'{"epoch": 1}\n{"epo')
    ([{'epoch': 1}], '')
    >>> parse_lines(b'{"epoch": 1}\n7\n')
    ([{'epoch': 1}], 'line 2 is no object but a number')
    """
    records: list[dict[str, Any]] = []
    lines = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        last = number == len(lines)
        if last and not line:
            break
        try:
            record = unseal(line)
        except Damaged as reason:
            return records, "" if last else f"line {number} {reason}"
        if type(record.get("epoch")) is not int:
            return records, f"line {number} has no epoch"
        before = records[-1]["epoch"] if records else 0
        if record["epoch"] <= before:
            return records, f"line {number} is of epoch {record['epoch']}, after epoch {before}"
        if record.pop(AFTER, before) != before:
            return records, f"lines before line {number}, of epoch {record['epoch']}, are missing"
        records.append(record)
    return records, ""


def read_bytes(path: Path) -> bytes:
    """All of a file; nothing where there is none."""
    try:
        return read_some(path, MOST_LOG_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as reason:
        raise ClasswiseError(f"{path} cannot be read: {reason.strerror or reason}") from None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Every record of a file, in the order of their epochs; damage is refused by its line."""
    records, wrong = parse_lines(read_bytes(path))
    if wrong:
        raise damaged_lines(path, wrong)
    return records


def damaged_lines(path: Path, wrong: str) -> Damaged:
    """Say what is wrong with a file of lines, and what to do."""
    return Damaged(
        f"{path} is damaged: {wrong}; restore it from a copy, or resume the training, "
        "which puts it right"
    )


def are_rates(tables: Any) -> bool:
    """Whether something is a table of rates: condition -> `overall` and `by_class`."""
    return isinstance(tables, dict) and all(
        isinstance(one, dict)
        and isinstance(one.get("by_class"), list)
        and all(_is_rate(rate) for rate in [one.get("overall"), *one["by_class"]])
        for one in tables.values()
    )


def _is_rate(value: Any) -> bool:
    return value is None or type(value) in (int, float)
