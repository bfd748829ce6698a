"""Parquet files believed only as far as they are whole, of our version and of a bearable size."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import torch

from classwise.data.memory import SHARE, free_bytes
from classwise.errors import ClasswiseError, cut
from classwise.limits import MOST_BYTES, MOST_CLASSES, MOST_ROWS, MOST_SAMPLES, MOST_SHARD_BYTES
from classwise.record.rows import VERSION, Stamp, columns
from classwise.sealed import Damaged

_LEAST_MEMORY = 1 << 28  # bytes
_MARK = b"blake2b="  # before the checksum, which stands in the file's own notes
_BLANK = b"0" * 32  # in its place while it is computed
_NOTES = 2 * MOST_BYTES  # bytes at a file's end that have its notes: mostly a JSON text
_PIECE = 1 << 20  # bytes
_whole: set[tuple[str, int, int, int]] = set()  # files that this process has verified
UNSEALED = (_MARK + _BLANK).decode()  # what a file's notes have until it is sealed


def connected() -> duckdb.DuckDBPyConnection:
    """A connection with temporary tables of its own, to be closed after use."""
    try:
        base = _engine(os.getpid()).cursor()
        base.execute("SELECT 1").fetchall()
    except duckdb.FatalException:  # a damaged file was read: the engine answers nobody any more
        _engine.cache_clear()
        return _engine(os.getpid()).cursor()
    return base


@cache
def _engine(process: int) -> duckdb.DuckDBPyConnection:
    """The engine of a process, which takes longer to start than a shard to write.

    A forked process has none of its parent's threads: it needs an engine of its own.
    """
    assert process == os.getpid()
    return duckdb.connect(config=bounds())


def seal_file(path: Path) -> None:
    """Put the checksum of a file into the blank that was left for it."""
    with path.open("r+b") as stream:
        place = _last(stream, _MARK + _BLANK)
        if place >= 0:
            found = _checksum(stream, place + len(_MARK))
            stream.seek(place + len(_MARK))
            stream.write(found)
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
    if _strange(facts):
        return False
    with path.open("rb") as stream:
        place = _last(stream, _MARK)
        if place < 0:
            return None
        stream.seek(place + len(_MARK))
        if stream.read(len(_BLANK)) != _checksum(stream, place + len(_MARK)):
            return False
    _whole.add(known)
    return True


def _strange(facts: os.stat_result) -> str:
    """What forbids to read a file at all: a pipe would be waited for, a device has no end."""
    if not stat.S_ISREG(facts.st_mode):
        return "it is no plain file"
    if facts.st_size > MOST_SHARD_BYTES:
        return f"it has more than {MOST_SHARD_BYTES >> 30} GB"
    return ""


def _last(stream: BinaryIO, words: bytes) -> int:
    """Where some bytes stand last among a file's notes, which are at its end; -1: nowhere."""
    begin = max(stream.seek(0, os.SEEK_END) - _NOTES, 0)
    stream.seek(begin)
    place = stream.read().rfind(words)
    return place if place < 0 else begin + place


def _checksum(stream: BinaryIO, place: int) -> bytes:
    """The checksum of a file that has the blank at this place, in pieces: it may be large."""
    total, left = hashlib.blake2b(digest_size=len(_BLANK) // 2), place
    stream.seek(0)
    while left and (piece := stream.read(min(left, _PIECE))):
        total.update(piece)
        left -= len(piece)
    total.update(_BLANK)
    stream.seek(place + len(_BLANK))
    while piece := stream.read(_PIECE):
        total.update(piece)
    return total.hexdigest().encode()


def damaged_files(folder: Path) -> list[Path]:
    """Files that cannot be believed."""
    found = []
    for path in sorted(folder.glob("*.parquet")):
        with contextlib.suppress(FileNotFoundError):  # compacted meanwhile
            whole = is_whole(path)
            if not (_readable(path) if whole is None else whole):
                found.append(path)
    return found


def _readable(path: Path) -> bool:
    try:
        with connected() as base:  # of its own: some damage ends the engine, not only the query
            for key in ("classwise_ledger", "about"):
                notes_of(base, [path], key)
    except (duckdb.Error, Damaged):
        return not path.exists()
    return True


def check_whole(files: Sequence[Path]) -> None:
    """Refuse, by name, a file whose bytes are not those that were written."""
    for path in files:
        if is_whole(path) is False:
            why = _strange(path.stat()) or "its content does not match its checksum"
            raise Damaged(
                f"{path} is damaged: {why}; repeat the audit, which sets it aside and judges its "
                "samples again"
            )


def check_versions(base: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> None:
    """Refuse, by name, a file that is damaged or of another version."""
    try:
        versions = notes_of(base, files, "classwise_ledger")
    except duckdb.Error:
        for path in files:  # which one was it?
            try:
                with connected() as own:
                    notes_of(own, [path], "classwise_ledger")
            except duckdb.Error as reason:
                words = cut(" ".join(str(reason).split()), 200)
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


def bounds() -> dict[str, Any]:
    """What the tables may take: a small file can hold very many equal rows."""
    free = free_bytes(torch.device("cpu")) or _LEAST_MEMORY
    most = max(int(SHARE * free), _LEAST_MEMORY) >> 20
    return {"memory_limit": f"{most}MiB", "autoload_known_extensions": False}


def check_rows(base: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> None:
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


def check_values(base: duckdb.DuckDBPyConnection) -> None:
    """Refuse rows that no audit writes: without a verdict, or with absurd numbers."""
    words = (*columns(Stamp), "condition", "norm", "verdict")
    said = " AND ".join(f"{name} IS NOT NULL" for name in words)
    bad = base.execute(
        "SELECT filename, sample, label, predicted FROM shards WHERE NOT coalesce("
        "sample BETWEEN 0 AND ? AND label BETWEEN 0 AND ? AND predicted BETWEEN 0 AND ? "
        "AND correct = (label = predicted) AND radius >= 0 AND isfinite(radius) "
        f"AND iterations >= 0 AND {said}, false) LIMIT 1",
        [MOST_SAMPLES - 1, MOST_CLASSES - 1, MOST_CLASSES - 1],
    ).fetchone()
    if bad:
        raise ClasswiseError(
            f"{bad[0]} has a row that no audit writes (sample {bad[1]}, label {bad[2]}, predicted "
            f"{bad[3]}); it is damaged or made up, move it away and audit again"
        )


def notes_of(base: duckdb.DuckDBPyConnection, files: Iterable[Path], key: str) -> dict[str, str]:
    """One entry of each file's own notes; only the ends of the files are read."""
    names = [str(path) for path in files]
    if not names:
        return {}
    rows = base.execute(
        "SELECT file_name, value FROM parquet_kv_metadata(?) WHERE key = encode(?) "
        "ORDER BY file_name",
        [names, key],
    ).fetchall()
    return {file: _text(value, file) for file, value in rows}


def _text(value: bytes, file: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Damaged(
            f"{file} is damaged: its notes are no text; repeat the audit, which sets it aside and "
            "judges its samples again"
        ) from None


def digest(content: bytes, size: int = 8) -> str:
    """Twice so many hex digits of some bytes."""
    return hashlib.blake2b(content, digest_size=size).hexdigest()
