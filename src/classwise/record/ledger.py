"""The sample ledger: the same attack on the same image with the same model is run once.

Every judged piece becomes a Parquet shard at once, or, where pieces are many and small, together
with others after some seconds, so a crash loses about a minute; a finished condition is compacted
into one file. Shards are named by their content: ledgers of several machines are merged by copying
their files into one folder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

import duckdb
import numpy as np
import numpy.typing as npt

from classwise.record.card import ledger_folder
from classwise.record.rows import Predictions, Stamp, columns, concatenate, read_back
from classwise.record.shards import content_digest, file_stem, open_table, quoted, write_rows
from classwise.record.shelf import Shelf

Whole: TypeAlias = npt.NDArray[np.int64]


@dataclass
class _Waiting:
    """Verdicts that are known but on no disk, by whose they are and whether with images."""

    parts: dict[tuple[Stamp, bool], list[Predictions]] = field(default_factory=dict)
    seconds: float | None = None  # between two writes; None: nothing waits
    written: float = 0.0  # when that was


@dataclass(frozen=True)
class Ledger:
    """A folder of shards; `about` is what each of them says of its data.

    >>> Ledger(Path("nowhere")).shelf(Stamp("r", "last", "test")).has(np.arange(2)).tolist()
    [False, False]
    """

    folder: Path
    about: Mapping[str, Any] = field(default_factory=dict)
    _shelves: dict[Stamp, Shelf] = field(default_factory=dict, repr=False, compare=False)
    _waiting: _Waiting = field(default_factory=_Waiting, repr=False, compare=False)

    @classmethod
    def at(cls, path: Path, about: Mapping[str, Any] | None = None) -> Ledger:
        """Open the ledger of a run folder, or a bare folder of shards."""
        return cls(ledger_folder(path), about or {})

    def append(self, found: Predictions, stamp: Stamp) -> Path:
        """Write one shard, whole or not at all, and know what it holds."""
        path = self._write(found, stamp)
        self._know(found, stamp)
        return path

    def keep(self, found: Predictions, stamp: Stamp) -> None:
        """Append verdicts now or, while `gathering`, together with others; know them now."""
        waiting = self._waiting
        if waiting.seconds is None:
            self.append(found, stamp)
            return
        waiting.parts.setdefault((stamp, found.image is not None), []).append(found)
        self._know(found, stamp)
        if monotonic() - waiting.written >= waiting.seconds:
            self.flush()

    @contextlib.contextmanager
    def gathering(self, seconds: float) -> Iterator[None]:
        """Write what is kept meanwhile at most so often, and the rest at the end.

        The end may also be an error or Ctrl-C. A kill loses what came since the last write: less
        than `seconds` of work, and the piece that was at work.
        """
        self._waiting.seconds, self._waiting.written = seconds, monotonic()
        try:
            yield
        finally:
            self._waiting.seconds = None
            self.flush()

    def flush(self) -> None:
        """Write what waits, one shard for each condition."""
        while self._waiting.parts:
            (stamp, pictured), parts = next(iter(self._waiting.parts.items()))
            self._write(concatenate([replace(one, losses={}) for one in parts]), stamp)
            del self._waiting.parts[stamp, pictured]
        self._waiting.written = monotonic()

    def _know(self, found: Predictions, stamp: Stamp) -> None:
        if stamp in self._shelves:
            self._shelves[stamp].add(found)
            self._shelves[stamp].name(found.sample)

    def _write(self, found: Predictions, stamp: Stamp) -> Path:
        path = self.folder / f"{file_stem(stamp, found)}--{content_digest(stamp, found)}.parquet"
        write_rows(path, found, stamp, self.about)
        return path

    def shelf(self, stamp: Stamp) -> Shelf:
        """What is there of a model, data set and attack; the files are read the first time only."""
        self.open([stamp])
        return self._shelves[stamp]

    def open(self, stamps: Sequence[Stamp]) -> None:
        """Put several attacks on their shelves; every file is opened once for all of them."""
        closed = [stamp for stamp in stamps if stamp not in self._shelves]
        if not closed:
            return
        with self._table(closed) as base:
            known, named = _each(base, closed, named=False), _each(base, closed, named=True)
        for stamp, one, same in zip(closed, known, named, strict=True):
            self._shelves[stamp] = Shelf(one, same)

    def read(self, stamp: Stamp, *, named: bool = False) -> Predictions | None:
        """All verdicts of a model, data set and attack, by sample number; None if there are none.

        The hashes decide. Only with `named` must the rows also carry the names of the weights
        and the split, which may differ: the best weights are often the last ones too.
        """
        (found,) = self.read_each([stamp], named=named)
        return found

    def read_each(
        self, stamps: Sequence[Stamp], *, named: bool = False
    ) -> list[Predictions | None]:
        """The same for several attacks; every file is opened once for all of them."""
        if not stamps:
            return []
        with self._table(stamps) as base:
            return _each(base, stamps, named=named)

    def _table(self, stamps: Sequence[Stamp]) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        self.flush()
        return open_table(self.folder, " OR ".join(_where(stamp, False) for stamp in stamps))

    def compact(self, stamp: Stamp, begins: str = "") -> None:
        """Put all shards of one condition into one file; the shards go once it is there.

        Files whose names do not begin like that are not looked into.
        """
        self.flush()
        where = _where(stamp, named=True)
        with open_table(self.folder, begins=begins) as base:
            files = base.execute(
                f"SELECT filename FROM shards GROUP BY filename HAVING bool_and({where}) "
                "ORDER BY filename"
            ).fetchall()
            if len(files) < 2:
                return
            names = ", ".join(f"'{quoted(name)}'" for (name,) in files)
            found = _read(base, f"{where} AND filename IN ({names})")
        if found is None:
            return
        path = self._write(found, stamp)
        for (name,) in files:
            if Path(name) != path:
                with contextlib.suppress(OSError):
                    Path(name).unlink()


def _each(
    base: duckdb.DuckDBPyConnection, stamps: Sequence[Stamp], *, named: bool
) -> list[Predictions | None]:
    """What a table has of several attacks; of most there is often nothing, which costs nothing."""
    keys = {key for (key,) in base.execute("SELECT DISTINCT attack_key FROM shards").fetchall()}
    return [
        _read(base, _where(stamp, named)) if stamp.attack_key in keys else None for stamp in stamps
    ]


def _read(base: duckdb.DuckDBPyConnection, where: str) -> Predictions | None:
    # The view has every verdict once for each name of the weights; here names do not matter.
    rows = base.execute(
        f"SELECT {', '.join(columns(Predictions))} FROM rows WHERE {where} QUALIFY "
        "row_number() OVER (PARTITION BY sample ORDER BY correct, predicted, logit_gap, image IS "
        "NULL) = 1 "
        "ORDER BY sample"
    ).fetchnumpy()
    return read_back(rows) if len(rows["sample"]) else None


def _where(stamp: Stamp, named: bool) -> str:
    facts = ["model_hash", "data_hash", "attack_key", *(["weights", "split"] if named else [])]
    said = " AND ".join(f"{name} = '{quoted(getattr(stamp, name))}'" for name in facts)
    return f"({said})"
