"""A table of predictions that a stranger made, CSV or Parquet, inside of the engine and checked."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from classwise.csv_rows import MOST_COLUMNS
from classwise.errors import ClasswiseError, cut
from classwise.limits import MOST_CLASSES

MOST_BYTES = 4 << 30
MOST_PREDICTIONS = 20_000_000  # rows; a thousand conditions on 20 000 images
SAMPLE = ("sample", "index")
KNOWN = ("label", "predicted", "condition", "eps", "norm")
SCORE = "score_"


def plain_table(path: Path) -> Path:
    """The path of a plain file that may be such a table."""
    if not path.is_file() or not stat.S_ISREG(path.stat().st_mode):
        raise ClasswiseError(f"no file {path}; give a CSV or Parquet file of predictions")
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise ClasswiseError(f"{path} ends in {path.suffix!r}; predictions end in .csv or .parquet")
    if path.stat().st_size > MOST_BYTES:
        raise ClasswiseError(f"{path} is larger than {MOST_BYTES >> 30} GB; divide it")
    if set("*?[") & set(str(path)):  # the engine would look for other files by such a name
        raise ClasswiseError(f"{path} has one of * ? [ in its name; rename it")
    return path


def quoted_name(name: str) -> str:
    """The name of a column as it stands in a query."""
    return '"' + name.replace('"', '""') + '"'


@dataclass
class ForeignTable:
    """The file inside of the engine, as words; checked before it is believed."""

    base: duckdb.DuckDBPyConnection
    file: Path
    columns: dict[str, str] = field(default_factory=dict)  # what it is -> how the file calls it
    own: list[str] = field(default_factory=list)
    scores: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """What the file's ending says that it is."""
        return "Parquet" if self.file.suffix.lower() == ".parquet" else "CSV"

    def bad(self, words: str, row: int | None = None) -> ClasswiseError:
        """Say what is wrong, and in which line or row."""
        if row is None:
            return ClasswiseError(f"{self.file}: {words}")
        place = f"line {row + 2}" if self.kind == "CSV" else f"row {row}"
        return ClasswiseError(f"{self.file}, {place}: {words}")

    def ask(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self.base.execute(query, list(values)).fetchall()

    def load(self) -> None:
        """Bring the file into the engine, once its columns and rows are few enough."""
        if self.kind == "Parquet":
            rows = self.ask("SELECT num_rows FROM parquet_file_metadata(?)", str(self.file))
            self._check_count(sum(int(row[0]) for row in rows))
            source = "read_parquet(?)"
        else:
            source = (
                "read_csv(?, all_varchar=true, header=true, delim=',', quote='\"', escape='\"', "
                "null_padding=false, ignore_errors=false)"
            )
        heads = self.ask(f"DESCRIBE SELECT * FROM {source}", str(self.file))
        self._know([str(row[0]) for row in heads])
        texts = [*self.columns.values(), *self.own]
        told = [f"trim(CAST({quoted_name(n)} AS VARCHAR)) AS {quoted_name(n)}" for n in texts]
        told += [f"TRY_CAST({quoted_name(n)} AS DOUBLE) AS {quoted_name(n)}" for n in self.scores]
        self.base.execute(
            f"CREATE TEMP TABLE given AS SELECT {', '.join(told)} FROM {source} "
            f"LIMIT {MOST_PREDICTIONS + 1}",
            [str(self.file)],
        )
        self._check_count(int(self.ask("SELECT count(*) FROM given")[0][0]))
        for what in ("sample", "label", "predicted", "condition", "eps", "norm"):
            if what in self.columns:
                name = quoted_name(self.columns[what])
                empty = self.ask(f"SELECT rowid FROM given WHERE coalesce({name}, '') = '' LIMIT 1")
                if empty:
                    raise self.bad(f"{what} is empty", int(empty[0][0]))

    def _check_count(self, count: int) -> None:
        if not count:
            raise self.bad("it has no row")
        if count > MOST_PREDICTIONS:
            raise self.bad(
                f"it has {count} rows or more; {MOST_PREDICTIONS} are the most, divide it"
            )

    def _know(self, heads: Sequence[str]) -> None:
        """Tell the columns apart by their names."""
        for head in heads:
            small = head.strip().lower()
            what = "sample" if small in SAMPLE else small
            if head.startswith(SCORE):
                self.scores.append(head)
            elif what in ("sample", *KNOWN):
                if what in self.columns:
                    raise self.bad(f"two columns are called {what}")
                self.columns[what] = head
            else:
                self.own.append(head)
        missing = [what for what in ("sample", "label") if what not in self.columns]
        if "predicted" not in self.columns and not self.scores:
            missing.append(f"predicted (or {SCORE}CLASS for every class)")
        if missing:
            raise self.bad(f"it has no column {missing[0]}; it has {cut(', '.join(heads))}")
        if len(self.own) > MOST_COLUMNS or len(self.scores) > MOST_CLASSES:
            raise self.bad(f"it has {len(heads)} columns; no table of predictions has")
