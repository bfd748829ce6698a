"""The runs of all studies in one folder: which are there, and where the next one goes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from pathlib import Path
from typing import Any

from classwise.attacks.names import parse_conditions
from classwise.attacks.threat import Threat
from classwise.errors import ClasswiseError
from classwise.files import write_atomically
from classwise.record.card import ledger_folder, read_run_json
from classwise.record.shards import open_table, read_abouts
from classwise.sealed import read_sealed, sealed_text
from classwise.spelling import split_outside_brackets
from classwise.studies.audit_jobs import AuditJob
from classwise.studies.grid import Job, weights_meant
from classwise.studies.planned import PlannedRun, run_key
from classwise.studies.records import WEIGHTS
from classwise.studies.spelled import spell_recipe
from classwise.studies.study import Audit
from classwise.training.config import TrainConfig
from classwise.training.run import Run


@dataclass(frozen=True)
class Looks:
    """What is watched in a run, and how often; without looks there is no "how often"."""

    names: frozenset[str] = frozenset()
    every: int = 0

    @classmethod
    def of(cls, watch: str, every: int | None) -> Looks:
        """Those of a configuration."""
        names = frozenset(name.strip() for name in split_outside_brackets(watch, ",") if watch)
        return cls(names, every or 0) if names else cls()

    def cover(self, other: Looks) -> bool:
        """Whether all looks of another are among these, in all of its epochs."""
        often = not other.names or (self.every > 0 and other.every % self.every == 0)
        return other.names <= self.names and often

    def __or__(self, other: Looks) -> Looks:
        return Looks(self.names | other.names, gcd(self.every, other.every))

    @property
    def settings(self) -> dict[str, Any]:
        """As a configuration has them."""
        if not self.names:
            return {}
        return {"watch": ",".join(sorted(self.names)), "watch_every": self.every}


@dataclass(frozen=True)
class RunInFolder:
    """A run that is there, whole or not."""

    path: Path
    looks: Looks
    epochs: int
    said: tuple[str, ...] = ()  # a record has no weights, but says which there were

    @property
    def finished(self) -> int:
        """Epochs that it has behind it."""
        return Run(self.path).finished_epochs

    @property
    def weights(self) -> Sequence[str]:
        """Names of its weights, or of those that a record was made beside."""
        return Run(self.path).weights or self.said


@dataclass(frozen=True)
class RunsFolder:
    """The runs in a folder, by their keys, and what is said of those that failed."""

    folder: Path
    runs: Mapping[str, tuple[RunInFolder, ...]]

    @classmethod
    def of(cls, folder: Path) -> RunsFolder:
        """Look at every run.json of a folder; what cannot be read is no run of a study."""
        found: dict[str, tuple[RunInFolder, ...]] = {}
        for card in sorted(folder.glob("[!.]*/run.json")):  # .NAME.part is not whole yet
            try:
                about = read_run_json(card.parent)
                key = run_key(about["recipe"], about["config"], about.get("sources"))
                config = about["config"]
                looks = Looks.of(config.get("watch") or "", config.get("watch_every"))
                said = tuple(map(str, about.get(WEIGHTS, ())))
                run = RunInFolder(card.parent, looks, int(config["epochs"]), said)
            except (ClasswiseError, LookupError, TypeError, ValueError):
                continue
            found[key] = (*found.get(key, ()), run)
        return cls(folder, found)

    def and_records(self, records: RunsFolder) -> RunsFolder:
        """The same and what a folder of records has; of two as far, the record."""
        runs = {
            key: (*records.runs.get(key, ()), *self.runs.get(key, ()))
            for key in (*self.runs, *records.runs)
        }
        return replace(self, runs=runs)

    def covering(self, planned: PlannedRun) -> RunInFolder | None:
        """The run that was asked for and took its looks; the one that is farthest, of several."""
        wanted = looks_of(planned.config)
        fitting = [run for run in self.runs.get(planned.key, ()) if run.looks.cover(wanted)]
        return max(fitting, key=lambda run: run.finished, default=None)

    def place(self, planned: PlannedRun) -> Path:
        """Where a run is, or will be."""
        there = self.covering(planned)
        if there is not None:
            return there.path
        looks = looks_of(planned.config)
        words = f"{planned.recipe.name}-s{planned.config.seed}"
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "+-") else "-" for c in words)
        name = f"{plain[:60]}-{planned.key}"
        if looks.names:
            text = json.dumps([sorted(looks.names), looks.every])
            name += f"-{hashlib.blake2b(text.encode(), digest_size=2).hexdigest()}"
        return self.folder / name

    def failure(self, key: str) -> str:
        """Why a run failed when it was last tried; nothing if it did not."""
        path = self._failed(key)
        return str(read_sealed(path, "delete it").get("why", "")) if path.exists() else ""

    def note_failure(self, key: str, why: str) -> None:
        """Keep why a run failed, or forget it."""
        if why:
            write_atomically(self._failed(key), sealed_text({"why": why}))
        else:
            self._failed(key).unlink(missing_ok=True)

    def _failed(self, key: str) -> Path:
        return self.folder / f"{key}.failed.json"


def looks_of(config: TrainConfig) -> Looks:
    """What a run is to be watched by."""
    return Looks.of(config.watch, config.watch_every)


def together(runs: Iterable[PlannedRun]) -> dict[str, PlannedRun]:
    """One run for every key, with the looks and audits of all studies that want it."""
    found: dict[str, PlannedRun] = {}
    for run in runs:
        if run.lacking:
            continue
        other = found.get(run.key)
        found[run.key] = run if other is None else _both(other, run)
    # Whoever makes features is one run, too, with the looks of all that want it.
    return {
        key: replace(run, maker=found.get(run.maker.key, run.maker)) if run.maker else run
        for key, run in found.items()
    }


def _both(one: PlannedRun, other: PlannedRun) -> PlannedRun:
    looks = looks_of(one.config) | looks_of(other.config)
    plain = {**one.config.model_dump(), "watch": "", "watch_every": None}
    plain["keep_every"] = gcd(one.config.keep_every, other.config.keep_every)
    audits = tuple(dict.fromkeys([*one.audits, *other.audits]))
    config = TrainConfig(**{**plain, **looks.settings})
    return replace(one, config=config, audits=audits)


def job_of(planned: PlannedRun, kept: RunsFolder, imports: tuple[str, ...] = ()) -> Job:
    """What a process needs to make a run; audits of the same images are made in one go."""
    alike: dict[tuple[tuple[str, ...], int, str], list[Audit]] = {}
    for audit in planned.audits:
        alike.setdefault((audit.weights, audit.limit, audit.split), []).append(audit)
    audits = tuple(
        AuditJob(
            ",".join(dict.fromkeys(name for one in some for name in one.attacks)),
            *images,
            any(one.similarity for one in some),
        )
        for images, some in alike.items()
    )
    used = tuple(name for name in imports if any(
        method.startswith(f"{name}:") for method in planned.recipe.canonical))  # fmt: skip
    text = spell_recipe(planned.recipe, used)
    made = planned.maker
    maker = None if made is None else job_of(replace(made, audits=()), kept, imports)
    return Job(text, planned.config, audits, kept.place(planned), used, maker, planned.features)


def is_done(planned: PlannedRun, kept: RunsFolder) -> bool:
    """Whether a run is trained and all of its audits are in its ledger, by what is on disk."""
    there = kept.covering(planned)
    if there is None or there.finished < there.epochs:
        return False
    try:
        threat = Threat.of(planned.config.eps_of_judge, planned.config.norm)
        there_are = there.weights
        return bool(there_are) and all(
            is_audited(there.path, threat, audit, weights_meant(there_are, audit.weights))
            for audit in planned.audits
        )
    except ClasswiseError:  # damaged: the audit that is repeated will mend it, or say so
        return False


def is_audited(path: Path, threat: Threat, audit: Audit, weights: Sequence[str]) -> bool:
    """Whether a folder's ledger has all of an audit with these weights."""
    keys = {one.key for one in parse_conditions(",".join(audit.attacks), threat, own=False)}
    if audit.similarity and weights and not any((path / "similarity").glob("*.safetensors")):
        return False
    with open_table(ledger_folder(path)) as base:
        cells = base.execute(
            "SELECT weights, attack_key, model_hash, data_hash, count(*) FROM rows "
            "WHERE split = ? GROUP BY ALL",
            [audit.split],
        ).fetchall()
    sizes = {
        owner: sum(about["data"].get("sizes") or ())
        for owner, about in read_abouts(ledger_folder(path)).items()
    }
    whole = {
        (name, key)
        for name, key, model, data, count in cells
        if (total := sizes.get((model, data), 0)) and count >= min(audit.limit or total, total)
    }
    return all((name, key) in whole for name in weights for key in keys)
