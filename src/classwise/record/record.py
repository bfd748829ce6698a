"""Where the audits of one model on one data set are kept: verdicts, and what to know of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from classwise.attacks.condition import Condition
from classwise.data.view import View, Whole
from classwise.errors import ClasswiseError
from classwise.files import set_aside
from classwise.locks import forget_the_dead, short_lock
from classwise.models.subject import Subject
from classwise.record.card import audit_facts
from classwise.record.ledger import Ledger
from classwise.record.remarks import note_key, note_on, write_remarks
from classwise.record.rows import Predictions, Stamp
from classwise.record.shard_files import damaged_files
from classwise.record.shards import stem_begins, stem_of
from classwise.record.shelf import Shelf


@dataclass(frozen=True)
class Record:
    """A folder with a ledger, and the names that rows of this model and data carry there."""

    folder: Path
    ledger: Ledger
    stamp: Stamp
    black_box: bool = False
    asked: tuple[str, ...] = ()  # what was put before and behind the model

    @classmethod
    def of(
        cls, folder: Path, subject: Subject, data: View, *, recipe: str, weights: str, split: str
    ) -> Record:
        """The record of a model's audits in a folder."""
        ledger = Ledger(folder / "predictions", {"recipe_name": recipe, "data": data.about()})
        stamp = Stamp(folder.name, weights, split, subject.identity, data.identity)
        return cls(folder, ledger, stamp, subject.black_box, subject.words)

    def mend(self) -> str:
        """Set damaged shards aside, so that their samples are judged again; say so, if any."""
        forget_the_dead(self.folder)
        if not damaged_files(self.ledger.folder):
            return ""
        with short_lock(self.folder, "setting damage aside"):
            moved = [set_aside(path) for path in damaged_files(self.ledger.folder)]
            lost = {path.name.rpartition("--")[0] for path in moved}
            facts = [one for one in audit_facts(self.folder) if stem_of(one) in lost]
            note_on(self.folder, facts, "samples of a damaged shard are missing; audit it again")
        if not moved:  # another audit was quicker
            return ""
        many = "1 damaged shard is" if len(moved) == 1 else f"{len(moved)} damaged shards are"
        return (
            f"{many} set aside in {moved[0].parent}: {', '.join(path.name for path in moved)}; "
            "their samples are judged again when their attack is asked for"
        )

    def stamped(self, condition: Condition) -> Stamp:
        """Whose and what a condition's rows are."""
        return replace(self.stamp, attack_key=condition.key)

    def shelf(self, condition: Condition) -> Shelf:
        """What is known under a condition; the files are read the first time only."""
        return self.ledger.shelf(self.stamped(condition))

    def open(self, conditions: Sequence[Condition]) -> None:
        """Read what is known under all these conditions at once."""
        self.ledger.open([self.stamped(condition) for condition in conditions])

    def claim(self, condition: Condition, samples: Whole) -> None:
        """Give rows of their own to verdicts that are known under other names of the weights."""
        shelf = self.shelf(condition)
        unnamed = shelf.unnamed(samples)
        if len(unnamed):
            self.append(condition, shelf.rows(unnamed))

    def append(self, condition: Condition, found: Predictions) -> None:
        """Write verdicts down, whole or not at all; while `gathering`, together with others."""
        self.ledger.keep(found, self.stamped(condition))

    def gathering(self, seconds: float) -> AbstractContextManager[None]:
        """Write verdicts at most every so many seconds, and the rest when it ends, however."""
        return self.ledger.gathering(seconds)

    def tidy(self, condition: Condition) -> None:
        """Put all shards of a condition into one file, also those of an audit beside this one."""
        begins = stem_begins(self.stamp.weights, self.stamp.split, condition.name)
        there = (path.name.startswith(begins) for path in self.ledger.folder.glob("*.parquet"))
        if sum(there) > 1:  # else nothing is written: a folder may be read-only
            with short_lock(self.folder, "compacting"):
                self.ledger.compact(self.stamped(condition), begins)

    def everything(self) -> list[Predictions]:
        """Every audit of this model on these data, whatever its weights are called."""
        owner = self.stamp.model_hash, self.stamp.data_hash
        stamps = {
            one["attack_key"]: replace(self.stamp, attack_key=one["attack_key"])
            for one in audit_facts(self.folder)
            if (one["model_hash"], one["data_hash"]) == owner
        }
        self.ledger.open(list(stamps.values()))
        shelves = [self.ledger.shelf(stamp) for stamp in stamps.values()]
        return [shelf.rows(shelf.samples) for shelf in shelves if len(shelf.samples)]

    def known(self, conditions: Sequence[Condition], samples: Whole) -> Whole:
        """Which samples are known under every condition, so that none of them is run."""
        for condition in conditions:
            samples = samples[self.shelf(condition).has(samples)]
        return samples

    def notes(
        self, asked: Sequence[tuple[Condition, View]], size: int, note: str | None
    ) -> dict[str, str | None]:
        """What the ledger now lacks of each condition's images; None where nothing is.

        `size` is that of the whole split. Where everything asked for is there, but more besides, an
        earlier audit may have chosen that by what it saw: its note stays.
        """
        notes: dict[str, str | None] = {}
        for condition, data in asked:
            wanted = data.numbers
            have = self.shelf(condition).samples
            key = note_key({"data_hash": self.stamp.data_hash, "attack_key": condition.key})
            if not np.isin(wanted, have).all():
                notes[key] = note
            elif len(have) in (len(wanted), size):
                notes[key] = None
        return notes

    def remark(
        self,
        notes: Mapping[str, str | None],
        seen: Sequence[str] | None = None,
        probed: Sequence[str] | None = None,
    ) -> None:
        """Keep notes and flags beside the audits; what is None stays as it was."""
        write_remarks(
            self.folder,
            self.stamp.model_hash,
            seen={} if seen is None else {self.stamp.data_hash: seen},
            probed=probed,
            black_box=self.black_box,
            asked=self.asked,
            notes=notes,
        )

    def broken_off(self, reason: Exception, samples: Whole, kept: int, of: int) -> ClasswiseError:
        """Say where an audit broke off and what is kept."""
        kind = "" if isinstance(reason, ClasswiseError) else f"{type(reason).__name__}: "
        words = " ".join(str(reason).split())[:300]
        return ClasswiseError(
            f"samples {samples.min()} to {samples.max()}: {kind}{words}; {kept} of {of} samples "
            f"are kept in {self.ledger.folder}, repeat the command to go on from there"
        )
