"""One trial: a run in a folder of its own, found by its identity, and stopped where it is hopeless.

A run is stopped after an epoch at which half of the finished trials, or more, were better in both
objectives after the same epoch. With one objective this would be the rule of the median.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from classwise.classes.counts import ClassCounts
from classwise.classes.settings import Seen
from classwise.data.dataset import DataSource
from classwise.data.sources import data_to_train_on
from classwise.errors import ClasswiseError
from classwise.locks import FolderLock, Held
from classwise.models import names_own_model
from classwise.sealed import Damaged
from classwise.training.config import choose_device
from classwise.training.identity import identity_of
from classwise.training.loop import IN_USE, Trainer
from classwise.training.progress import TrainProgress
from classwise.training.run import Run
from classwise.training.state import Progression
from classwise.tuning.judged import Judge, Pair
from classwise.tuning.start import Start

NEEDED = 4  # finished trials before any is stopped
BEFORE = 1 / 3  # share of the epochs that every trial has


@dataclass(frozen=True)
class Job:
    """A trial to be run, in this process or another."""

    number: int
    start: Start
    values: Mapping[str, Any]
    judge: Judge
    folder: Path  # of all runs
    prune: bool
    device: str
    threads: int | None = None  # None: as many as torch likes


@dataclass(frozen=True)
class Outcome:
    """What became of it: both objectives, or the epoch it was stopped after, or what went wrong."""

    number: int
    identity: str = ""
    pair: Pair | None = None
    weights: str = ""
    stopped: int = 0
    failed: str = ""


class Hopeless(Exception):
    """A run that most others have left behind."""


class _StoppableTrainer(Trainer):
    """Training that asks before every epoch whether to go on; all before it is on disk."""

    ask: Callable[[int], None]

    def run_epoch(
        self, state: Progression, progress: TrainProgress
    ) -> tuple[Progression, dict[Seen, ClassCounts], dict[str, float]]:
        """Ask, then train."""
        self.ask(state.epoch)
        return super().run_epoch(state, progress)


@lru_cache(maxsize=1)
def data_without_test(spec: str) -> DataSource:
    """The data with an empty test part: nothing in a search could look at it, even by mistake."""
    source = data_to_train_on(spec)
    return replace(source, test=source.train.subset(torch.arange(0)), places=None)


def run_trial(job: Job) -> Outcome:
    """Train a trial, or go on with it, or find it finished."""
    if job.threads:
        torch.set_num_threads(job.threads)
    recipe, config = job.start.made(job.values)
    source = data_without_test(config.data)
    identity = identity_of(recipe, config, source)
    path = job.folder / identity
    own = config.model if names_own_model(config.model) else None
    try:
        trainer = _StoppableTrainer(
            Run(path, own), recipe, config, source, choose_device(job.device)
        )
        trainer.ask = _Question(job, path, config.epochs)
        # a worker of a tune that was killed may still be at it
        with FolderLock(path, "training", wait=True, remedy=IN_USE) as lock:
            trainer.run.claim(trainer.about)
            trainer.go(True, lock)
    except Hopeless:
        return Outcome(job.number, identity, stopped=len(Run(path).history))
    except Held:  # nothing is wrong with the trial: the search ends, and later goes on with it
        raise
    except ClasswiseError as reason:
        return Outcome(job.number, identity, failed=str(reason))
    pair, weights = job.judge.pair(Run(path).history[-1])
    if not all(map(math.isfinite, (pair.average, pair.worst))):
        return Outcome(job.number, identity, failed="validation has no finite rate")
    return Outcome(job.number, identity, pair, weights)


@dataclass(frozen=True)
class _Question:
    """Whether a run that stands after some epoch is still worth its time."""

    job: Job
    path: Path
    epochs: int

    def __call__(self, epoch: int) -> None:
        if not self.job.prune or epoch < max(1, math.ceil(BEFORE * self.epochs)):
            return
        mine = self.job.judge.pair(_history(self.path)[epoch - 1])[0]
        others = [
            self.job.judge.pair(history[epoch - 1])[0]
            for path in sorted(self.job.folder.iterdir())
            if path != self.path and len(history := _history(path)) == self.epochs
        ]
        if is_hopeless(mine, others):
            raise Hopeless


def is_hopeless(mine: Pair, others: list[Pair]) -> bool:
    """Whether at least half of the finished trials beat it at the same epoch.

    >>> is_hopeless(Pair(0.1, 0.1), [Pair(0.2, 0.2)] * 2 + [Pair(0.1, 0.1)] * 2)
    True
    >>> is_hopeless(Pair(0.1, 0.1), [Pair(0.2, 0.2)] * 3)
    False
    """
    return len(others) >= NEEDED and 2 * sum(one.beats(mine) for one in others) >= len(others)


def _history(path: Path) -> list[dict[str, Any]]:
    """The epochs of a run; of one that is damaged nothing, which is no fault of any other."""
    run = Run(path)
    try:
        return run.history if run.begun else []
    except Damaged:
        return []
