"""The sample ledger: the same attack on the same image with the same model is run once.

Every judged piece becomes a Parquet shard at once, so a crash loses about a minute; a finished
condition is compacted into one file. Shards are named by their content: ledgers of several
machines are merged by copying their files into one folder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import numpy as np
import numpy.typing as npt
import torch

from classwise.auditing.predictions import ledger_folder
from classwise.auditing.shards import (
    Predictions,
    Stamp,
    content_digest,
    file_stem,
    open_table,
    quoted,
    select,
    write_rows,
)
from classwise.auditing.shelf import Shelf, pieces
from classwise.data.batches import Batches
from classwise.errors import ClasswiseError

Whole: TypeAlias = npt.NDArray[np.int64]
Judge: TypeAlias = Callable[[Batches], Predictions]  # one batch -> its verdicts

_ROWS = (
    "sample, CAST(label AS BIGINT) AS label, CAST(predicted AS BIGINT) AS predicted, logit_gap, "
    "radius, iterations, broken_by"
)


@dataclass(frozen=True)
class Ledger:
    """A folder of shards; `about` is what each of them says of its data.

    >>> Ledger(Path("nowhere")).missing(Stamp("r", "last", "test"), np.arange(3)).tolist()
    [0, 1, 2]
    """

    folder: Path
    about: Mapping[str, Any] = field(default_factory=dict)
    _shelves: dict[Stamp, Shelf] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def at(cls, path: Path, about: Mapping[str, Any] | None = None) -> Ledger:
        """Open the ledger of a run folder, or a bare folder of shards."""
        return cls(ledger_folder(path), about or {})

    def append(self, found: Predictions, stamp: Stamp) -> Path:
        """Write one shard, whole or not at all."""
        path = self.folder / f"{file_stem(stamp, found)}--{content_digest(stamp, found)}.parquet"
        write_rows(path, found, stamp, self.about)
        return path

    def shelf(self, stamp: Stamp) -> Shelf:
        """What is there of a model, data set and attack; the files are read the first time only."""
        if stamp not in self._shelves:
            self._shelves[stamp] = Shelf(self.read(stamp), self.read(stamp, named=True))
        return self._shelves[stamp]

    def missing(self, stamp: Stamp, samples: Whole) -> Whole:
        """Which of `samples` this model has not met under this attack yet, in their order."""
        return samples[~self.shelf(stamp).has(samples)]

    def read(self, stamp: Stamp, *, named: bool = False) -> Predictions | None:
        """All verdicts of a model, data set and attack, by sample number; None if there are none.

        The hashes decide. Only with `named` must the rows also carry the names of the weights
        and the split, which may differ: the best weights are often the last ones too.
        """
        where = _where(stamp, named)
        with open_table(self.folder, where) as base:
            return _read(base, where)

    def compact(self, stamp: Stamp) -> None:
        """Put all shards of one condition into one file; the shards go once it is there."""
        where = _where(stamp, named=True)
        with open_table(self.folder) as base:
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
        path = self.append(found, stamp)
        for (name,) in files:
            if Path(name) != path:
                with contextlib.suppress(OSError):
                    Path(name).unlink()

    def complete(
        self,
        stamp: Stamp,
        batches: Batches,
        judge: Judge,
        *,
        advance: Callable[[int], None] | None = None,
        compact: bool = True,
        steady: bool = False,
    ) -> Predictions:
        """Verdicts on all samples of `batches`, judging only those that are missing.

        Every piece is on disk before the next begins, and takes about half a minute at the most,
        unless it must be `steady`. If the model raises, what was judged stays and the error names
        the samples. `advance` is told how many samples are done.
        """
        shelf, wanted = self.shelf(stamp), batches.origin.cpu().numpy()
        # The same weights under another name need rows of their own, but no attack.
        unnamed = shelf.unnamed(wanted)
        if len(unnamed):
            self.append(shelf.rows(unnamed), stamp)
            shelf.name(unnamed)
        todo = np.flatnonzero(~shelf.has(wanted))
        if advance is not None:
            advance(len(wanted) - len(todo))
        done = 0
        for rows in pieces(todo, batches.batch_size, steady=steady):
            try:
                found = judge(piece(batches, rows))
            except Exception as reason:
                kept = len(wanted) - len(todo) + done
                raise self._broken_off(reason, wanted[rows], kept, len(wanted)) from reason
            self.append(found, stamp)
            shelf.add(found)
            shelf.name(found.sample)
            done += len(rows)
            if advance is not None:
                advance(len(rows))
        if compact:
            self.compact(stamp)
        if not len(wanted):
            raise ClasswiseError("no images given; an audit needs at least one")
        return shelf.rows(wanted)

    def _broken_off(self, reason: Exception, samples: Whole, kept: int, of: int) -> ClasswiseError:
        """Say where it broke off and what is kept."""
        kind = "" if isinstance(reason, ClasswiseError) else f"{type(reason).__name__}: "
        words = " ".join(str(reason).split())[:300]
        return ClasswiseError(
            f"samples {samples.min()} to {samples.max()}: {kind}{words}; {kept} of {of} samples "
            f"are kept in {self.folder}, repeat the command to go on from there"
        )


def piece(batches: Batches, rows: Whole) -> Batches:
    """Cut some rows out of the data as one batch."""
    index = torch.from_numpy(rows)
    at_images = index.to(batches.images.device)
    at_labels = index.to(batches.labels.device)
    labels, origin = batches.labels[at_labels], batches.origin[at_labels]
    return Batches(batches.images[at_images], labels, origin, len(rows))


def in_order_of(samples: Whole, found: Predictions) -> Predictions:
    """Bring verdicts into the order of `samples`; others are left out."""
    order = np.argsort(found.sample, kind="stable")
    place = np.searchsorted(found.sample[order], samples)
    return select(found, order[place])


def _read(base: duckdb.DuckDBPyConnection, where: str) -> Predictions | None:
    # The view has every verdict once for each name of the weights; here names do not matter.
    rows = base.execute(
        f"SELECT {_ROWS}, condition, norm, seed, verdict FROM rows WHERE {where} QUALIFY "
        "row_number() OVER (PARTITION BY sample ORDER BY correct, predicted, logit_gap) = 1 "
        "ORDER BY sample"
    ).fetchnumpy()
    if not len(rows["sample"]):
        return None
    words = np.ma.asarray(rows["broken_by"])
    broken = np.ma.getdata(words).astype(object)
    broken[np.ma.getmaskarray(words)] = None
    plain = {n: np.ma.getdata(rows[n]) for n in ("sample", "label", "predicted", "logit_gap")}
    return Predictions(
        str(rows["condition"][0]),
        **plain,
        radius=np.ma.getdata(rows["radius"]),
        iterations=np.ma.getdata(rows["iterations"]),
        broken_by=broken,
        norm=str(rows["norm"][0]),
        seed=int(rows["seed"][0]),
        verdict=str(rows["verdict"][0]),
    )


def _where(stamp: Stamp, named: bool) -> str:
    facts = ["model_hash", "data_hash", "attack_key", *(["weights", "split"] if named else [])]
    return " AND ".join(f"{name} = '{quoted(getattr(stamp, name))}'" for name in facts)
