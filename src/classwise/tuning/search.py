"""`tune`: draw values, train, tell, until there are enough trials or the time is over."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from classwise.data.dataset import Dataset
from classwise.errors import ClasswiseError
from classwise.files import write_atomically
from classwise.locks import FolderLock
from classwise.progress import Course
from classwise.sealed import read_sealed, sealed_text
from classwise.training.build import rows_to_use
from classwise.training.config import TrainConfig
from classwise.training.identity import identity_of
from classwise.tuning.judged import Judge
from classwise.tuning.ranges import Varied
from classwise.tuning.start import Start, check_attacks
from classwise.tuning.trial import Job, Outcome, data_without_test, run_trial
from classwise.tuning.trials import Trial, Trials

CARD = "tune.json"
RUNS = "runs"
_REMEDY = "wait until it has ended, or choose another folder"
_GIVE_UP = 3  # trials that fail before any has ended otherwise


@dataclass(frozen=True)
class Search:
    """What is searched, and how: everything that decides which trials come next."""

    start: Start
    varied: tuple[Varied, ...]
    prune: bool = True
    seed: int = 0  # of the drawn values

    @classmethod
    def of(cls, start: Start, varied: tuple[Varied, ...], prune: bool, seed: int) -> Search:
        """Refuse what cannot be searched; a varied eps is judged at the one that was given."""
        recipe, config = start.made({})
        check_attacks(recipe)
        if not varied:
            raise ClasswiseError(
                f"nothing to search: no option of {recipe.name} has a range by default; give "
                "--search, as in --search lr=log:0.01..0.4"
            )
        if config.watch:
            raise ClasswiseError(
                f"watch={config.watch} has no place in a search, which looks at validation images "
                "alone; leave it out"
            )
        if any(one.option == "eps" for one in varied):
            start = start.with_values({"judge_eps": config.eps_of_judge})
        return cls(start, varied, prune, seed)

    @property
    def beginning(self) -> dict[str, Any]:
        """The values that the user has now, as far as they lie inside."""
        found = {one.option: one.drawn_as(self.start.value_of(one.option)) for one in self.varied}
        return {option: value for option, value in found.items() if value is not None}


@dataclass(frozen=True)
class Budget:
    """How much may be spent."""

    trials: int = 20  # in all, with those that are there
    minutes: float | None = None  # after which no trial begins; those that run go on to their end
    workers: int = 1


@dataclass(frozen=True)
class Tuned:
    """What a search has found so far."""

    search: Search
    judge: Judge
    trials: tuple[Trial, ...]
    class_names: tuple[str, ...]
    valid_sizes: tuple[int, ...]  # validation images of each class
    folder: Path

    @property
    def complete(self) -> list[Trial]:
        """Trials with both objectives."""
        return [one for one in self.trials if one.pair is not None]


def tune(
    search: Search,
    out: Path,
    budget: Budget,
    *,
    device: str = "auto",
    wait_for: bool = False,
    quiet: bool = True,
    console: Console | None = None,
) -> Tuned:
    """Search, or go on with a search; what is finished is never repeated."""
    recipe, config = search.start.made({})
    source = data_without_test(config.data)
    sizes = _validation_sizes(source.train, config)
    judge = Judge.of(recipe, config, sum(sizes))
    _check_place(out)
    with FolderLock(out, "tuning", wait=wait_for, remedy=_REMEDY) as lock:
        _claim(out, search, identity_of(recipe, config, source))
        trials = Trials(out, search.varied, search.seed)
        if search.beginning:
            trials.begin_with(search.beginning)
        threads = 1 if budget.workers > 1 else None
        (out / RUNS).mkdir(exist_ok=True)

        def job(told: Trial) -> Job:
            where = out / RUNS
            return Job(told.number, search.start, told.values, judge, where, search.prune,
                       device, threads)  # fmt: skip

        with Course(quiet=quiet, console=console) as course:
            _Going(trials, budget, course, lock).go(job)
        names = source.train.class_names
        return Tuned(search, judge, tuple(trials.all), names, tuple(sizes), out)


class _Going:
    """The loop: as many trials at a time as there are workers."""

    def __init__(self, trials: Trials, budget: Budget, course: Course, lock: FolderLock) -> None:
        self.trials, self.budget, self.course, self.lock = trials, budget, course, lock
        self.began = time.monotonic()

    def go(self, job_of: Callable[[Trial], Job]) -> None:
        """Run what was broken off, then new trials."""
        again = self.trials.unfinished()
        ended = len(self.trials.all) - len(again)
        self.course.begin("trials", self.budget.trials, min(ended, self.budget.trials))
        with _pool(self.budget.workers) as submit:
            running: set[Future[Outcome]] = set()
            while True:
                while len(running) < self.budget.workers and (told := self._next(again)):
                    running.add(submit(job_of(told)))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for one in done:
                    self._take(one.result())

    def _next(self, again: list[Trial]) -> Trial | None:
        if again:
            return again.pop(0)
        minutes = self.budget.minutes
        over = minutes is not None and time.monotonic() - self.began >= 60 * minutes
        if over or len(self.trials.all) >= self.budget.trials:
            return None
        self.lock.check()
        return self.trials.ask()

    def _take(self, outcome: Outcome) -> None:
        self.lock.check()
        self.trials.tell(outcome)
        known = self.trials.all
        failed = [one for one in known if one.state == "failed"]
        ended = [one for one in known if one.state in ("complete", "stopped")]
        best = max((one.pair.both for one in ended if one.pair), default=None)
        so_far = "" if best is None else f", best average + worst {100 * best:.1f}"
        self.course.now(f"{len(ended)} of {self.budget.trials} trials{so_far}")
        self.course.advance()
        if len(failed) >= _GIVE_UP and not ended:
            raise ClasswiseError(
                f"the first {len(failed)} trials failed; the last: {outcome.failed}"
            )


@contextmanager
def _pool(workers: int) -> Iterator[Callable[[Job], Future[Outcome]]]:
    """How a job is started: here and now, or in one of several processes."""
    if workers == 1:
        yield _at_once
        return
    # spawn: a forked child would inherit torch's thread pool in an unusable state
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
    try:
        yield lambda job: pool.submit(run_trial, job)
    except BaseException:  # do not wait for runs that nobody wants; their epochs are kept
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise
    pool.shutdown()


def _end_with_parent() -> None:
    """In a worker: end when the search is killed; checkpoints are written so that this is safe."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _at_once(job: Job) -> Future[Outcome]:
    done: Future[Outcome] = Future()
    done.set_result(run_trial(job))
    return done


def _validation_sizes(data: Dataset, config: TrainConfig) -> list[int]:
    """Images of each class that trials are judged by; a class without any is refused."""
    _, rows = rows_to_use(data, config)
    sizes: list[int] = data.subset(rows).sizes.tolist()
    for name, size in zip(data.class_names, sizes, strict=True):
        if not size:
            raise ClasswiseError(
                f"class {name!r} has no validation image, so its robust accuracy cannot be known; "
                "set aside more with --valid, such as --valid 0.2"
            )
    return sizes


def _check_place(out: Path) -> None:
    for folder in (out, *out.parents):
        if folder.exists() and not folder.is_dir():
            raise ClasswiseError(f"{out} cannot be a folder: {folder} is a file; choose another")
    strange = out.exists() and not (out / CARD).exists()
    if strange and any(path.suffix not in (".part", ".lock") for path in out.iterdir()):
        raise ClasswiseError(f"{out} exists and is no search of ours; choose another folder")


def _claim(out: Path, search: Search, base: str) -> None:
    """Take an empty folder, or go on with the same search; another one is refused."""
    about = {
        "format": 1,
        "base": base,
        "search": [str(one) for one in search.varied],
        "prune": search.prune,
        "seed": search.seed,
    }
    text = json.dumps(about, sort_keys=True).encode()
    about["identity"] = hashlib.blake2b(text, digest_size=8).hexdigest()
    card = out / CARD
    if not card.exists():
        write_atomically(card, sealed_text(about))
        return
    there = read_sealed(card, "choose another folder, or put it back")
    if there.get("identity") != about["identity"]:
        differs = [name for name in ("base", "search", "prune", "seed")
                   if there.get(name) != about[name]]  # fmt: skip
        names = {"base": "recipe, data or settings", "search": "ranges", "seed": "--search-seed"}
        words = ", ".join(names.get(name, name) for name in differs) or "format"
        raise ClasswiseError(
            f"{out} holds another search (other {words}); repeat its own command to go on with it, "
            "or choose another folder"
        )


def counted(trials: Sequence[Trial], state: str) -> int:
    """How many trials are in that state."""
    return sum(one.state == state for one in trials)
