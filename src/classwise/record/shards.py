"""Parquet shards of one long table: a row per sample and condition, through duckdb.

A folder of Parquet files is one long table. Every file says which version it is and what its
classes are called, so that it can be read without the model, the data or the run it came from; and
it has a checksum over all its bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from classwise.errors import ClasswiseError
from classwise.record.rows import VERSION, Predictions, Stamp, columns, samples_of, sql_types
from classwise.sealed import Damaged

# What a file's name is made from: the verdicts themselves, as they always were.
_MARK = b"blake2b="  # before the checksum, which stands in the file's own notes
_BLANK = b"0" * 32  # in its place while it is computed
_whole: set[tuple[str, int, int, int]] = set()  # files that this process has verified
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


def connected() -> duckdb.DuckDBPyConnection:
    """A connection with temporary tables of its own, to be closed after use."""
    return _engine(os.getpid()).cursor()


@cache
def _engine(process: int) -> duckdb.DuckDBPyConnection:
    """The engine of a process, which takes longer to start than a shard to write.

    A forked process has none of its parent's threads: it needs an engine of its own.
    """
    assert process == os.getpid()
    return duckdb.connect()


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
                f"checksum: '{(_MARK + _BLANK).decode()}'}})",
                said,
            )
        _seal(part)
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


def _seal(path: Path) -> None:
    """Put the checksum of a file into the blank that was left for it."""
    content = path.read_bytes()
    place = content.rfind(_MARK + _BLANK)
    with path.open("r+b") as stream:
        if place >= 0:
            stream.seek(place + len(_MARK))
            stream.write(_digest(content, 16).encode())
            stream.flush()
        os.fsync(stream.fileno())


def is_whole(path: Path) -> bool | None:
    """Whether a file's bytes fit its checksum; None where it has none. Each file is read once.

    A bit that flipped inside the mark itself only hides the checksum: the rows are whole.
    """
    facts = path.stat()
    known = (str(path), facts.st_size, facts.st_mtime_ns, facts.st_ino)
    if known in _whole:
        return True
    content = path.read_bytes()
    place = content.rfind(_MARK)
    if place < 0:
        return None
    begin, end = place + len(_MARK), place + len(_MARK) + len(_BLANK)
    if content[begin:end] != _digest(content[:begin] + _BLANK + content[end:], 16).encode():
        return False
    _whole.add(known)
    return True


def damaged_files(folder: Path) -> list[Path]:
    """Files that cannot be believed."""
    found = []
    with duckdb.connect() as base:
        for path in sorted(folder.glob("*.parquet")):
            with contextlib.suppress(FileNotFoundError):  # compacted meanwhile
                whole = is_whole(path)
                if not (_readable(base, path) if whole is None else whole):
                    found.append(path)
    return found


def _readable(base: duckdb.DuckDBPyConnection, path: Path) -> bool:
    try:
        _notes(base, [path], "classwise_ledger")
    except duckdb.Error:
        return not path.exists()
    return True


@contextlib.contextmanager
def open_table(folder: Path, where: str = "true") -> Iterator[duckdb.DuckDBPyConnection]:
    """Give a connection in which `rows` is the long table of a folder, every verdict once.

    Shards of several machines may hold the same sample twice. Where they disagree, the verdict
    that the sample fell is kept: an attack that succeeded anywhere has succeeded. `shards` has
    all of them, with their file names.
    """
    with connected() as base:
        _load(base, folder, where)
        base.execute(
            "CREATE TEMP VIEW rows AS SELECT * FROM shards QUALIFY row_number() OVER (PARTITION "
            "BY weights, split, model_hash, data_hash, attack_key, sample "
            "ORDER BY correct, predicted, logit_gap, image IS NULL, run) = 1"
        )
        yield base


def _load(base: duckdb.DuckDBPyConnection, folder: Path, where: str) -> None:
    """Read the files of a folder, again if another process compacts them meanwhile."""
    for _ in range(10):
        files = sorted(folder.glob("*.parquet"))
        try:
            check_whole(files)
            check_versions(base, files)
            base.execute(f"CREATE TEMP TABLE shards AS {_all_rows(files)} WHERE {where}")
            return
        except (duckdb.Error, ClasswiseError, OSError) as reason:
            failure = reason
            if all(path.exists() for path in files):
                break
    if isinstance(failure, ClasswiseError):
        raise failure
    words = " ".join(str(failure).split())
    raise ClasswiseError(f"{folder} is not a table of predictions ({words})") from None


def check_whole(files: Sequence[Path]) -> None:
    """Refuse, by name, a file whose bytes are not those that were written."""
    for path in files:
        if is_whole(path) is False:
            raise Damaged(
                f"{path} is damaged: its content does not match its checksum; repeat the audit, "
                "which sets it aside and judges its samples again"
            )


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
                raise Damaged(
                    f"{path} is not a table of predictions ({words}); repeat the audit, which sets "
                    "it aside and judges its samples again"
                ) from None
        raise
    for path in files:
        version = versions.get(str(path))
        if version != str(VERSION):
            got = "has no ledger version" if version is None else f"is of ledger version {version}"
            raise ClasswiseError(
                f"{path} {got}, and this classwise reads version {VERSION}; "
                "move it away and audit again, or use the classwise that wrote it"
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
        about = json.loads(words.get(file, "{}"))
        if about:
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
    return f"SELECT * FROM (({table}) UNION ALL BY NAME {rows})"


def _digest(content: bytes, size: int = 8) -> str:
    return hashlib.blake2b(content, digest_size=size).hexdigest()
