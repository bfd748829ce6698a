"""Parquet shards of one long table: a row per sample and condition, through duckdb.

A folder of Parquet files is one long table. Every file says which version it is and what its
classes are called, so that it can be read without the model, the data or the run it came from.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import torch

from classwise.data.memory import SHARE, free_bytes
from classwise.errors import ClasswiseError
from classwise.limits import MOST_CLASSES, MOST_ROWS, MOST_SAMPLES
from classwise.record.description import check_description
from classwise.record.rows import VERSION, Predictions, Stamp, columns, samples_of, sql_types
from classwise.texts import parse_json

_LEAST_MEMORY = 1 << 28  # bytes

# What a file's name is made from: the verdicts themselves, as they always were.
_DIGESTED = ("sample", "label", "predicted", "logit_gap", "radius", "iterations")


def file_stem(stamp: Stamp, found: Predictions) -> str:
    """Begin a file's name the way people look for it."""
    eps = found.radius.max(initial=0)
    name = (
        f"{stamp.weights}--{stamp.split}--{found.condition}--{found.norm}--eps{eps:.6g}"
        f"--seed{found.seed}--{found.verdict}"
    )
    plain = re.sub(r"[^\w.=,()-]", "_", name)
    # File systems stop at 255 bytes; what is cut off is told apart by its hash.
    return plain if len(plain) <= 150 else f"{plain[:133]}-{_digest(name.encode())}"


def content_digest(stamp: Stamp, found: Predictions) -> str:
    """Sixteen hex digits over who was judged by whom and how; equal files get equal names."""
    order = np.argsort(found.sample, kind="stable")
    numbers = [getattr(found, name)[order].tobytes() for name in _DIGESTED]
    owner = (stamp.model_hash, stamp.data_hash, stamp.attack_key)
    words = "\0".join([*owner, *(str(word) for word in found.broken_by[order])])
    return _digest(b"".join([*numbers, words.encode()]))


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
        with duckdb.connect() as base:
            base.register("found", rows)
            base.execute(
                f"COPY (SELECT {select} FROM found ORDER BY sample) TO '{quoted(part)}' (FORMAT "
                f"parquet, KV_METADATA {{classwise_ledger: '{VERSION}', about: '{words}'}})",
                said,
            )
        with part.open("rb") as stream:
            os.fsync(stream.fileno())
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
def open_table(folder: Path, where: str = "true") -> Iterator[duckdb.DuckDBPyConnection]:
    """Give a connection in which `rows` is the long table of a folder, every verdict once.

    Shards of several machines may hold the same sample twice. Where they disagree, the verdict
    that the sample fell is kept: an attack that succeeded anywhere has succeeded. `shards` has
    all of them, with their file names.
    """
    with duckdb.connect(config=_bounds()) as base:
        _load(base, folder, where)
        base.execute(
            "CREATE TEMP VIEW rows AS SELECT * FROM shards QUALIFY row_number() OVER (PARTITION "
            "BY weights, split, model_hash, data_hash, attack_key, sample "
            "ORDER BY correct, predicted, logit_gap, run) = 1"
        )
        yield base


def _load(base: duckdb.DuckDBPyConnection, folder: Path, where: str) -> None:
    """Read the files of a folder, again if another process compacts them meanwhile."""
    for _ in range(10):
        files = sorted(folder.glob("*.parquet"))
        try:
            check_versions(base, files)
            _check_rows(base, files)
            base.execute(f"CREATE TEMP TABLE shards AS {_all_rows(files)} WHERE {where}")
            _check_values(base)
            return
        except (duckdb.Error, ClasswiseError) as reason:
            failure = reason
            if all(path.exists() for path in files):
                break
    if isinstance(failure, ClasswiseError):
        raise failure
    words = " ".join(str(failure).split())
    raise ClasswiseError(f"{folder} is not a table of predictions ({words})") from None


def check_versions(base: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> None:
    """Refuse, by name, a file that is damaged or of another version."""
    try:
        versions = _notes(base, files, "classwise_ledger")
    except duckdb.Error:
        for path in files:  # which one was it?
            try:
                _notes(base, [path], "classwise_ledger")
            except duckdb.Error as reason:
                words = " ".join(str(reason).split())
                raise ClasswiseError(f"{path} is not a table of predictions ({words})") from None
        raise
    for path in files:
        version = versions.get(str(path))
        if version != str(VERSION):
            got = "has no ledger version" if version is None else f"is of ledger version {version}"
            raise ClasswiseError(
                f"{path} {got}, and this classwise reads version {VERSION}; "
                "move it away and audit again, or use the classwise that wrote it"
            )


def _bounds() -> dict[str, Any]:
    """What the tables may take: a small file can hold very many equal rows."""
    free = free_bytes(torch.device("cpu")) or _LEAST_MEMORY
    most = max(int(SHARE * free), _LEAST_MEMORY) >> 20
    return {"memory_limit": f"{most}MiB", "autoload_known_extensions": False}


def _check_rows(base: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> None:
    """Refuse more rows than any audit has, by what the ends of the files say."""
    if not files:
        return
    names = [str(path) for path in files]
    found = base.execute(
        "SELECT sum(rows) FROM (SELECT DISTINCT file_name, row_group_id, "
        "row_group_num_rows AS rows FROM parquet_metadata(?))",
        [names],
    ).fetchone()
    rows = int(found[0] or 0) if found else 0
    if rows > MOST_ROWS:
        raise ClasswiseError(
            f"{files[0].parent} holds {rows} rows of predictions; {MOST_ROWS} are the most"
        )


def _check_values(base: duckdb.DuckDBPyConnection) -> None:
    """Refuse rows that no audit writes: without a verdict, or with absurd numbers."""
    words = (*columns(Stamp), "condition", "norm", "verdict")
    said = " AND ".join(f"{name} IS NOT NULL" for name in words)
    bad = base.execute(
        "SELECT filename, sample, label, predicted FROM shards WHERE NOT coalesce("
        "sample BETWEEN 0 AND ? AND label BETWEEN 0 AND ? AND predicted BETWEEN 0 AND ? "
        "AND correct = (label = predicted) AND radius >= 0 AND isfinite(radius) "
        f"AND iterations >= 0 AND logit_gap IS NOT NULL AND {said}, false) LIMIT 1",
        [MOST_SAMPLES - 1, MOST_CLASSES - 1, MOST_CLASSES - 1],
    ).fetchone()
    if bad:
        raise ClasswiseError(
            f"{bad[0]} has a row that no audit writes (sample {bad[1]}, label {bad[2]}, predicted "
            f"{bad[3]}); it is damaged or made up, move it away and audit again"
        )


def read_abouts(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What the files of a folder say of each model and its data, by both hashes."""
    with open_table(folder) as base:
        owners = base.execute(
            "SELECT DISTINCT filename, model_hash, data_hash FROM shards ORDER BY ALL"
        ).fetchall()
        words = _notes(base, [Path(file) for file, _, _ in owners], "about")
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for file, model, data in owners:
        if file in words and words[file] != "{}":
            about = check_description(parse_json(words[file], file), file)
            found.setdefault((model, data), about)
    return found


def quoted(value: object) -> str:
    """Text that may stand between single quotes in SQL."""
    return str(value).replace("'", "''")


def _notes(base: duckdb.DuckDBPyConnection, files: Iterable[Path], key: str) -> dict[str, str]:
    """One entry of each file's own notes; only the ends of the files are read."""
    names = [str(path) for path in files]
    if not names:
        return {}
    return dict(
        base.execute(
            "SELECT file_name, decode(value) FROM parquet_kv_metadata(?) "
            "WHERE decode(key) = ? ORDER BY file_name",
            [names, key],
        ).fetchall()
    )


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


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
