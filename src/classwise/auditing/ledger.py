"""The sample ledger: the same attack on the same image with the same model is run once.

Every judged batch becomes a Parquet shard at once, so a crash loses at most one batch; a finished
condition is compacted into one file. Shards are named by their content: ledgers of several
machines are merged by copying their files into one folder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    write_rows,
)
from classwise.data.batches import Batches
from classwise.errors import ClasswiseError

Whole: TypeAlias = npt.NDArray[np.int64]
Judge: TypeAlias = Callable[[Batches], Predictions]  # one batch -> its verdicts

_COLUMNS = ("sample", "label", "predicted", "logit_gap", "radius", "iterations", "broken_by")
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

    @classmethod
    def at(cls, path: Path, about: Mapping[str, Any] | None = None) -> Ledger:
        """Open the ledger of a run folder, or a bare folder of shards."""
        return cls(ledger_folder(path), about or {})

    def append(self, found: Predictions, stamp: Stamp) -> Path:
        """Write one shard, whole or not at all."""
        path = self.folder / f"{file_stem(stamp, found)}--{content_digest(stamp, found)}.parquet"
        write_rows(path, found, stamp, self.about)
        return path

    def missing(self, stamp: Stamp, samples: Whole) -> Whole:
        """Which of `samples` this model has not met under this attack yet, in their order."""
        known = self.read(stamp)
        return samples if known is None else samples[~np.isin(samples, known.sample)]

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
    ) -> Predictions:
        """Verdicts on all samples of `batches`, judging only those that are missing.

        Every batch is on disk before the next begins. If the model raises, what was judged stays
        and the error names the batch. `advance` is told how many samples are done.
        """
        wanted = batches.origin.cpu().numpy()
        known, here = self.read(stamp), self.read(stamp, named=True)
        fresh = np.ones(len(wanted), bool) if known is None else ~np.isin(wanted, known.sample)
        if known is not None:
            # The same weights under another name need rows of their own, but no attack.
            there = np.isin(known.sample, wanted)
            if here is not None:
                there &= ~np.isin(known.sample, here.sample)
            if there.any():
                self.append(select(known, np.flatnonzero(there)), stamp)
        parts = [] if known is None else [known]
        if advance is not None:
            advance(int(len(wanted) - fresh.sum()))
        todo = np.flatnonzero(fresh)
        for number, rows in enumerate(cuts(todo, batches.batch_size)):
            try:
                found = judge(piece(batches, rows))
            except Exception as reason:
                raise self._broken_off(reason, wanted[rows], number, len(todo), batches) from reason
            self.append(found, stamp)
            parts.append(found)
            if advance is not None:
                advance(len(rows))
        if compact:
            self.compact(stamp)
        return in_order_of(wanted, concatenate(parts))

    def _broken_off(
        self, reason: Exception, samples: Whole, number: int, todo: int, batches: Batches
    ) -> ClasswiseError:
        """Say where it broke off and what is kept."""
        kind = "" if isinstance(reason, ClasswiseError) else f"{type(reason).__name__}: "
        words = " ".join(str(reason).split())[:300]
        done = len(batches.origin) - todo + number * batches.batch_size
        return ClasswiseError(
            f"batch {number + 1} (samples {samples.min()} to {samples.max()}): {kind}{words}; "
            f"{done} of {len(batches.origin)} samples are kept in {self.folder}, "
            "repeat the command to go on from there"
        )


def cuts(rows: Whole, size: int) -> Iterator[Whole]:
    """Split row numbers into batches.

    >>> [part.tolist() for part in cuts(np.arange(5), 2)]
    [[0, 1], [2, 3], [4]]
    """
    return (rows[begin : begin + size] for begin in range(0, len(rows), size))


def piece(batches: Batches, rows: Whole) -> Batches:
    """Cut some rows out of the data as one batch."""
    index = torch.from_numpy(rows)
    at_images = index.to(batches.images.device)
    at_labels = index.to(batches.labels.device)
    labels, origin = batches.labels[at_labels], batches.origin[at_labels]
    return Batches(batches.images[at_images], labels, origin, len(rows))


def concatenate(parts: Sequence[Predictions]) -> Predictions:
    """Join verdicts of one condition."""
    if not parts:
        raise ClasswiseError("no images given; an audit needs at least one")
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS
    }
    return replace(parts[0], **joined)


def select(found: Predictions, rows: Whole) -> Predictions:
    """Keep some rows."""
    kept: dict[str, Any] = {name: getattr(found, name)[rows] for name in _COLUMNS}
    return replace(found, **kept)


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
