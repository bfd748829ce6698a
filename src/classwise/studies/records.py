"""Records: run folders without weights, state and images, small enough to be kept with a project.

A record is read like any run. It has run.json without paths of this machine, the history and what
was watched with six digits of every number, remarks, and one Parquet file of predictions per data
set: who was judged, by whom, under what, and what was said. Logit gaps, iterations, the attack that
broke a sample, and images are left out. Identity, seed, versions and threads stay in run.json, so
that a page can say where its numbers are from.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from classwise.errors import ClasswiseError
from classwise.files import write_atomically
from classwise.locks import FolderLock
from classwise.record.card import ledger_folder, read_run_json
from classwise.record.lines import line_of, parse_lines, read_bytes
from classwise.record.rows import VERSION, sql_types
from classwise.record.run_folder import RunFolder
from classwise.record.shard_files import UNSEALED, digest, seal_file
from classwise.record.shards import open_table, quoted, read_abouts
from classwise.sealed import sealed_text
from classwise.studies.theirs import THEIRS
from classwise.texts import read_some

LINES = ("history.jsonl", "watch.jsonl")
COPIED = ("remarks.json", THEIRS)
WEIGHTS = "weights"  # in run.json: names of the weights that the run has, and its record not
DIGITS = 6  # of numbers in lines: rates of classes are shares of some thousand images at most
FOLDERS = ("groups", "truth", "similarity")  # small files beside an audit
LEFT_OUT = {"logit_gap": "NULL", "iterations": "0", "broken_by": "NULL", "image": "NULL"}
# Sample by sample within a condition: then all but labels and answers cost next to nothing.
_ORDER = "weights, split, attack_key, sample"
_PATH = re.compile(r"(?<![\w.:/])(?:~|[A-Za-z]:)?[/\\](?:[^\s,()'\"/\\]+[/\\])+([^\s,()'\"/\\]+)")


def has_record(run: Path, folder: Path) -> bool:
    """Whether a folder of records has one of this run, of whatever age."""
    return (folder / run.name / "run.json").exists()


def keep_record(run: Path, folder: Path) -> Path:
    """Write the record of a run into a folder of records, and return where it is.

    It is made beside its place and moved there whole: a kill leaves the old one, the new one, or
    for an instant between the two none, never a part of one.
    """
    about = read_run_json(run)
    if "identity" not in about and not (run / THEIRS).exists():
        raise ClasswiseError(f"{run} is no training run; a record is made of one")
    target = folder / run.name
    # The lock stands beside the record, whose folder is replaced.
    with FolderLock(folder, "keeping a record", name=f".{run.name}.lock", wait=True):
        _replace(run, target, about)
    return target


def _replace(run: Path, target: Path, about: Mapping[str, Any]) -> None:
    """Make the record beside its place, and move it there whole."""
    part, old = (target.with_name(f".{run.name}.{word}") for word in ("part", "old"))
    try:
        for stale in (part, old):
            shutil.rmtree(stale, ignore_errors=True)
        part.mkdir(parents=True)
        _fill(run, part, about)
        if target.exists():
            target.replace(old)
        part.replace(target)
    except OSError as reason:
        words = reason.strerror or reason
        raise ClasswiseError(f"cannot write the record {target}: {words}") from None
    finally:
        for stale in (part, old):
            shutil.rmtree(stale, ignore_errors=True)


def _fill(run: Path, target: Path, about: Mapping[str, Any]) -> None:
    _predictions(run, target / "predictions")
    for name in (*LINES, *COPIED):
        if (run / name).exists():
            content = _shorter(run / name) if name in LINES else read_some(run / name)
            write_atomically(target / name, content)
    for name in FOLDERS:
        if (run / name).is_dir():
            # what begins with a dot is being written this moment
            shutil.copytree(run / name, target / name, ignore=shutil.ignore_patterns(".*"))
    said = {**without_paths(about), WEIGHTS: RunFolder(run).weights}
    write_atomically(target / "run.json", sealed_text(said))


def _shorter(path: Path) -> bytes:
    """Lines of a history with fewer digits, each with its checksum."""
    lines, before = [], 0
    for record in parse_lines(read_bytes(path))[0]:
        lines.append(line_of(rounded(record), before))
        before = record["epoch"]
    return b"".join(lines)


def rounded(value: Any) -> Any:
    """Plain values with a few digits of every number.

    >>> rounded({"clean": [1 / 3, 0.25, 3], "loss": 1234.56789})
    {'clean': [0.333333, 0.25, 3], 'loss': 1234.57}
    """
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def without_paths(value: Any) -> Any:
    """Plain values with absolute paths cut to their last part.

    >>> without_paths({"begin": "/home/me/runs/a@best", "data": "folder('/d/x', size=8)"})
    {'begin': 'a@best', 'data': "folder('x', size=8)"}
    """
    if isinstance(value, str):
        return _PATH.sub(r"\1", value)
    if isinstance(value, Mapping):
        return {key: without_paths(one) for key, one in value.items()}
    return [without_paths(one) for one in value] if isinstance(value, list | tuple) else value


def _predictions(run: Path, folder: Path) -> None:
    """One file for each data set that the run was audited on."""
    folder.mkdir(exist_ok=True)
    abouts = read_abouts(ledger_folder(run))
    by_data: dict[str, dict[str, Any]] = {}
    for (_, data), about in abouts.items():
        by_data.setdefault(data, about)
    with open_table(ledger_folder(run)) as base:
        for data, about in by_data.items():
            path = folder / f"{digest(data.encode(), 4)}.parquet"
            _write(base, path, data, without_paths(about))


def _write(
    base: duckdb.DuckDBPyConnection, path: Path, data: str, about: Mapping[str, Any]
) -> None:
    columns = ", ".join(
        f"CAST({LEFT_OUT.get(name, name)} AS {kind}) AS {name}"
        for name, kind in sql_types().items()
    )
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    words = quoted(json.dumps(about))
    try:
        base.execute(
            f"COPY (SELECT {columns} FROM rows WHERE data_hash = '{quoted(data)}' ORDER BY "
            f"{_ORDER}) TO '{quoted(part)}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL "
            f"19, PARQUET_VERSION v2, ROW_GROUP_SIZE 1000000, KV_METADATA {{classwise_ledger: "
            f"'{VERSION}', about: '{words}', checksum: '{UNSEALED}'}})"
        )
        seal_file(part)
        part.replace(path)
    except (duckdb.Error, OSError) as reason:
        raise ClasswiseError(f"cannot write {path}: {' '.join(str(reason).split())}") from None
    finally:
        part.unlink(missing_ok=True)
