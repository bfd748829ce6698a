"""Parquet shards of one long table: a row per sample and condition, through duckdb.

A folder of Parquet files is one long table. Every file says which version it is and what its
classes are called, so that it can be read without the model, the data or the run it came from; and
it has a checksum over all its bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from classwise.errors import ClasswiseError, cut
from classwise.record.description import check_description
from classwise.record.rows import VERSION, Predictions, Stamp, columns, samples_of, sql_types
from classwise.record.shard_files import (
    UNSEALED,
    check_rows,
    check_values,
    check_versions,
    check_whole,
    connected,
    digest,
    notes_of,
    seal_file,
)
from classwise.texts import parse_json

# What a file's name is made from: the verdicts themselves, as they always were.
_CUT = 133  # letters of a name that is too long
_DIGESTED = ("sample", "label", "predicted", "logit_gap", "radius", "iterations")


def file_stem(stamp: Stamp, found: Predictions) -> str:
    """Begin a file's name the way people look for it."""
    said = {"weights": stamp.weights, "split": stamp.split, "condition": found.condition}
    how = {"norm": found.norm, "seed": found.seed, "verdict": found.verdict}
    return stem_of({**said, **how, "radius": found.radius.max(initial=0)})


def stem_of(facts: Mapping[str, Any]) -> str:
    """The same, from what a ledger says of a condition."""
    name = (
        "{weights}--{split}--{condition}--{norm}--eps{radius:.6g}--seed{seed}--{verdict}"
    ).format_map(facts)
    plain = _plain(name)
    # File systems stop at 255 bytes; what is cut off is told apart by its hash.
    return plain if len(plain) <= 150 else f"{plain[:_CUT]}-{digest(name.encode())}"


def stem_begins(weights: str, split: str, condition: str) -> str:
    """How the names of all files of a condition begin, whatever its radius and seed.

    >>> stem_begins("last", "test", "corruption:fog-3")
    'last--test--corruption_fog-3--'
    """
    return _plain(f"{weights}--{split}--{condition}--")[:_CUT]


def _plain(name: str) -> str:
    return re.sub(r"[^\w.=,()-]", "_", name)


def content_digest(stamp: Stamp, found: Predictions) -> str:
    """Sixteen hex digits over who was judged by whom and how; equal files get equal names."""
    order = np.argsort(found.sample, kind="stable")
    numbers = [getattr(found, name)[order].tobytes() for name in _DIGESTED]
    owner = (stamp.model_hash, stamp.data_hash, stamp.attack_key)
    words = "\0".join([*owner, *(str(word) for word in found.broken_by[order])])
    return digest(b"".join([*numbers, words.encode()]))


def write_rows(path: Path, found: Predictions, stamp: Stamp, about: Mapping[str, Any]) -> None:
    """Write predictions as one Parquet file that is there whole or not at all."""
    rows = {**samples_of(found), "correct": found.correct}
    said = {name: getattr(stamp, name) for name in columns(Stamp)}
    said |= {n: getattr(found, n) for n, column in columns(Predictions).items()
             if not column.per_sample}  # fmt: skip
    said |= {"version": VERSION}
    values = {name: name if name in rows else f"${name}" if name in said else "NULL"
              for name in sql_types()}  # fmt: skip
    select = ", ".join(f"CAST({values[n]} AS {kind}) AS {n}" for n, kind in sql_types().items())
    words = quoted(json.dumps(about))
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with connected() as base:
            base.register("found", rows)
            base.execute(
                f"COPY (SELECT {select} FROM found ORDER BY sample) TO '{quoted(part)}' (FORMAT "
                f"parquet, KV_METADATA {{classwise_ledger: '{VERSION}', about: '{words}', "
                f"checksum: '{UNSEALED}'}})",
                said,
            )
        seal_file(part)
        part.replace(path)
    except (duckdb.Error, OSError) as reason:
        why = " ".join(str(reason).split())
        raise ClasswiseError(
            f"cannot write {path}: {why}; what was written before stays, make room or choose "
            "another folder and repeat the command"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


@contextlib.contextmanager
def open_table(
    folder: Path, where: str = "true", begins: str = ""
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Give a connection in which `rows` is the long table of a folder, every verdict once.

    Only files whose names begin as told are read.

    Shards of several machines may hold the same sample twice. Where they disagree, the verdict
    that the sample fell is kept: an attack that succeeded anywhere has succeeded. `shards` has
    all of them, with their file names.
    """
    with connected() as base:
        _load(base, folder, where, begins)
        base.execute(
            "CREATE TEMP VIEW rows AS SELECT * FROM shards QUALIFY row_number() OVER (PARTITION "
            "BY weights, split, model_hash, data_hash, attack_key, sample "
            "ORDER BY correct, predicted, logit_gap, image IS NULL, run) = 1"
        )
        yield base


def _load(base: duckdb.DuckDBPyConnection, folder: Path, where: str, begins: str) -> None:
    """Read the files of a folder, again if another process compacts them meanwhile."""
    for _ in range(10):
        files = sorted(path for path in folder.glob("*.parquet") if path.name.startswith(begins))
        try:
            check_whole(files)
            check_versions(base, files)
            check_rows(base, files)
            base.execute(f"CREATE TEMP TABLE shards AS {_all_rows(files)} WHERE {where}")
            check_values(base)
            return
        except (duckdb.Error, ClasswiseError, OSError) as reason:
            failure = reason
            if all(path.exists() for path in files):
                break
    if isinstance(failure, ClasswiseError):
        raise failure
    words = cut(" ".join(str(failure).split()), 200)
    culprit = next((path for path in files if not _opens(path)), folder)
    raise ClasswiseError(
        f"{culprit} is not a table of predictions ({words}); move it away and audit again"
    ) from None


def _opens(path: Path) -> bool:
    try:
        with connected() as base:
            check_rows(base, [path])
            base.execute(f"CREATE TEMP TABLE tried AS {_all_rows([path])}")
    except duckdb.Error:
        return False
    return True


def read_abouts(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What the files of a folder say of each model and its data, by both hashes."""
    with open_table(folder) as base:
        owners = base.execute(
            "SELECT DISTINCT filename, model_hash, data_hash FROM shards ORDER BY ALL"
        ).fetchall()
        words = notes_of(base, [Path(file) for file, _, _ in owners], "about")
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for file, model, data in owners:
        if file in words and words[file] != "{}":
            about = check_description(parse_json(words[file], file), file)
            found.setdefault((model, data), about)
    return found


def quoted(value: object) -> str:
    """Text that may stand between single quotes in SQL."""
    return str(value).replace("'", "''")


def _all_rows(files: Sequence[Path]) -> str:
    """Every column, also those that older files do not have."""
    empty = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in sql_types().items())
    table = f"SELECT {empty}, '' AS filename LIMIT 0"
    if not files:
        return f"SELECT * FROM ({table})"
    names = ", ".join(f"'{quoted(path)}'" for path in files)
    rows = f"SELECT * FROM read_parquet([{names}], union_by_name=true, filename=true)"
    # A file may say that a number is text: what cannot be cast is no table of ours.
    cast = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in sql_types().items())
    return f"SELECT {cast}, filename FROM (({table}) UNION ALL BY NAME {rows})"
