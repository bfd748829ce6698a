"""Groupings in files: a table that a user gives, and what a run folder keeps of it.

A grouping belongs to samples, not to verdicts: it is kept beside the audits under the hash of its
data, where reports, comparisons and gates find it without model or images.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from classwise.csv_rows import bad_line, csv_heads, csv_rows
from classwise.errors import ClasswiseError
from classwise.files import holds, write_atomically
from classwise.judging.groups import Grouping, check_name, check_own, grouping_of
from classwise.judging.rates import Tally
from classwise.locks import short_lock
from classwise.sealed import read_sealed, sealed_text

FORMAT = 1
MOST_KEPT = 64 << 20  # bytes of one grouping in a run folder, about ten million images
_STAMP = "weights, split, model_hash, data_hash, attack_key"
SAMPLE = "sample"  # the column that says which image a line is about


def read_table(path: Path, size: int) -> dict[str, Grouping]:
    """Read a CSV file: `sample`, the image's number in its split, and a column per attribute.

    An empty cell is in no group, `fog|night` in two; so is an image that has no line. Whatever
    does not fit is refused with its line.
    """
    entries: dict[str, list[tuple[int, Sequence[str]]]] = {}
    lines: dict[int, int] = {}
    rows = csv_rows(path, "table of groups")
    heads = _heads(path, next(rows, (1, []))[1])
    for line, cells in rows:
        if len(cells) != len(heads):
            raise bad_line(path, line, f"has {len(cells)} cells, and the first line {len(heads)}")
        sample = _sample(path, line, cells[heads.index(SAMPLE)], size)
        if sample in lines:
            raise bad_line(path, line, f"is about sample {sample}, as line {lines[sample]} was")
        lines[sample] = line
        for head, cell in zip(heads, cells, strict=True):
            if head != SAMPLE:
                entries.setdefault(head, []).append((sample, _groups(path, line, head, cell)))
    if not lines:
        raise ClasswiseError(f"{path} has no line about a sample")
    try:
        return {head: grouping_of(head, found) for head, found in entries.items()}
    except ClasswiseError as reason:
        raise ClasswiseError(f"{path}: {reason}") from None


def _heads(path: Path, cells: Sequence[str]) -> list[str]:
    words = f"must name one column {SAMPLE!r} and a column for each attribute, separated by commas"
    heads = csv_heads(path, cells, [SAMPLE], words)
    if len(heads) < 2:
        raise bad_line(path, 1, words)
    return heads


def _sample(path: Path, line: int, cell: str, size: int) -> int:
    text = cell.strip()
    # isdecimal alone would let Arabic digits through, and int() a number of any length
    if not (text.isascii() and text.isdecimal() and len(text) < 19 and int(text) < size):
        raise bad_line(
            path,
            line,
            f"is about sample {text[:50]!r}; samples are whole numbers from 0 to {size - 1}, "
            "their places in the split",
        )
    return int(text)


def _groups(path: Path, line: int, head: str, cell: str) -> list[str]:
    names = [" ".join(part.split()) for part in cell.split("|")]
    if names == [""]:
        return []
    for name in names:
        if not name or names.count(name) > 1:
            raise bad_line(
                path, line, f"has {cell[:50]!r} in {head!r}; give each group once, as a|b"
            )
        try:
            check_name(f"group of {head!r}", name)
        except ClasswiseError as reason:
            raise bad_line(path, line, f"cannot be used: {reason}") from None
    return names


def keep_groupings(folder: Path, data_hash: str, groupings: Mapping[str, Grouping]) -> None:
    """Keep groupings of one data set in a run folder; one of the same name is replaced."""
    new: dict[Path, bytes] = {}
    for name, grouping in groupings.items():
        order = np.lexsort((grouping.member, grouping.group))
        cuts = np.searchsorted(grouping.group[order], np.arange(1, len(grouping.names)))
        parts = np.split(grouping.member[order], cuts)
        samples = {group: part.tolist() for group, part in zip(grouping.names, parts, strict=True)}
        content = {"format": FORMAT, "name": name, "data_hash": data_hash, "samples": samples}
        text = sealed_text(content, indent=None)
        if len(text) > MOST_KEPT:
            raise ClasswiseError(
                f"{name!r} groups more images than can be kept ({len(text) >> 20} MB; at most "
                f"{MOST_KEPT >> 20}); leave it out"
            )
        path = _folder(folder) / _file_name(data_hash, name)
        if not holds(path, text):
            new[path] = text
    if new:
        with short_lock(folder, "writing groups"):
            for path, text in new.items():
                write_atomically(path, text)


def groupings_in(folder: Path) -> dict[str, dict[str, Grouping]]:
    """All groupings that a run folder keeps: data hash -> name -> grouping."""
    found: dict[str, dict[str, Grouping]] = {}
    for path in sorted(_folder(folder).glob("*.json")):
        try:
            data, grouping = _from_json(read_sealed(path, "delete it", MOST_KEPT))
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as reason:
            raise ClasswiseError(
                f"{path} is no grouping of format {FORMAT} ({' '.join(str(reason).split())}); "
                "delete it, and audit again with --groups"
            ) from None
        found.setdefault(data, {})[grouping.name] = grouping
    return found


def count_groups(
    base: duckdb.DuckDBPyConnection, groupings: Mapping[str, Mapping[str, Grouping]]
) -> dict[tuple[str, ...], dict[str, Tally]]:
    """Tallies of every condition in the table `rows`, by its stamp and the grouping's name."""
    found: dict[tuple[str, ...], dict[str, Tally]] = {}
    for data, known in groupings.items():
        for name, grouping in known.items():
            base.register("members", {"sample": grouping.member, "number": grouping.group})
            cells = base.execute(
                # a sample without a pair has no number: it is outside of all groups
                f"SELECT {_STAMP}, number, count(*), count_if(correct) FROM rows LEFT JOIN members "
                "USING (sample) WHERE data_hash = ? GROUP BY ALL",
                [data],
            ).fetchall()
            base.unregister("members")
            several = grouping.overlapping
            for *stamp, number, size, hits in cells:
                of = found.setdefault(tuple(stamp), {})
                none, zero = (np.zeros(len(grouping.names), np.int64) for _ in range(2))
                tally = of.setdefault(name, Tally(grouping.names, none, zero, several))
                if number is None:
                    of[name] = tally._replace(outside=size)
                else:
                    tally.hits[number], tally.sizes[number] = hits, size
    return found


def _from_json(content: Any) -> tuple[str, Grouping]:
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']!r}")
    name, samples = content["name"], content["samples"]
    check_own(name, list(samples))
    numbers = [number for part in samples.values() for number in part]
    if not all(type(number) is int and 0 <= number < 2**40 for number in numbers):
        raise ValueError("samples are whole numbers")
    sizes = [len(part) for part in samples.values()]
    member = np.fromiter(chain.from_iterable(samples.values()), np.int64, sum(sizes))
    group = np.repeat(np.arange(len(sizes)), sizes)
    return str(content["data_hash"]), Grouping(name, tuple(samples), "sample", member, group)


def _folder(folder: Path) -> Path:
    return folder / "groups"


def _file_name(data_hash: str, name: str) -> str:
    """A file for each grouping; names may hold what file systems do not."""
    digest = hashlib.blake2b(f"{data_hash}\0{name}".encode(), digest_size=8).hexdigest()
    plain = "".join(mark if mark.isascii() and mark.isalnum() else "_" for mark in name)
    return f"{plain[:40]}--{digest}.json"
