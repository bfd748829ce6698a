"""Train and audit many runs, several at a time; what is there is not redone.

One job is one run: it is trained, or goes on from its last checkpoint, and then each of its weights
is audited. An executor runs jobs; processes of this machine are one, and others can stand beside.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeAlias

from rich.console import Console

from classwise.data.dataset import DataSource
from classwise.errors import ClasswiseError
from classwise.progress import Course
from classwise.spelling import average_and_keep
from classwise.studies.at_url import brought_here
from classwise.studies.audit_jobs import AuditJob, NetworkJob
from classwise.studies.feature_sets import Features
from classwise.studies.found import AVERAGED
from classwise.training.config import TrainConfig


@dataclass(frozen=True)
class Job:
    """One run of a grid: all that a process, here or elsewhere, needs to train and audit it."""

    recipe: str
    config: TrainConfig
    audits: tuple[AuditJob, ...]
    path: Path
    imports: tuple[str, ...] = ()  # modules of the user's that its recipe may name
    maker: Job | None = None  # the run that makes its data, if they are features
    features: Features | None = None
    device: str = "cpu"
    threads: int = 1  # of the processor
    home: str = ""  # the URL that its run is kept at; nothing: the folder itself

    def moved(self, folder: Path) -> Job:
        """The same in a folder of this machine."""
        maker = self.maker and replace(self.maker, path=folder / self.maker.path.name)
        return replace(self, path=folder / self.path.name, maker=maker, home="")


Task: TypeAlias = Job | NetworkJob
Done: TypeAlias = Callable[[Task, str], None]  # a job, and why it failed; nothing: it did not


class Executor(Protocol):
    """Who runs jobs."""

    def run(self, jobs: Sequence[Task], done: Done) -> None:
        """Run all jobs and say of each, in the calling thread, that it is done or why it failed.

        A job that fails does not stop the others. When this is interrupted, no job goes on.
        """


def jobs_of(
    recipes: Sequence[str],
    seeds: int,
    config: TrainConfig,
    attacks: str,
    folder: Path,
    imports: tuple[str, ...] = (),
) -> list[Job]:
    """Every recipe with every seed, the seeds of one recipe far apart so that a cut is even.

    `imports` are the modules that recipes may name; without leave none is imported.
    """
    return [
        Job(
            recipe,
            config.model_copy(update={"seed": seed}),
            (AuditJob(attacks),),
            folder / f"{recipe}-s{seed}",
            imports,
        )
        for seed in range(seeds)
        for recipe in recipes
    ]


def run_grid(jobs: Sequence[Job], *, workers: int, console: Console) -> list[Path]:
    """Run all jobs in `workers` processes of one thread each, and return the run folders."""
    failed = run_jobs(jobs, Processes(workers), console=console)
    if failed:
        path, words = next(iter(failed.items()))
        raise ClasswiseError(
            f"{len(failed)} of {len(jobs)} runs failed; first: {path.name}: {words}"
        )
    return [job.path for job in jobs]


def run_jobs(
    jobs: Sequence[Task],
    executor: Executor,
    *,
    console: Console,
    before: int = 0,
    done: Done | None = None,
    quiet: bool = False,
) -> dict[Path, str]:
    """Run all jobs with a line that says how far they are, and return why some of them failed.

    `before` are runs that were there already.
    """
    failed: dict[Path, str] = {}
    total = len(jobs) + before
    with Course(quiet=quiet, console=console) as course:
        course.begin(f"{before} of {total} runs", total, before)
        ended = before

        def note(job: Task, why: str) -> None:
            nonlocal ended
            if why:
                failed[job.path] = why
            if done is not None:
                done(job, why)
            ended += 1
            course.now(f"{ended} of {total} runs" + (f", {len(failed)} failed" if failed else ""))
            course.advance()

        executor.run(jobs, note)
    return failed


@dataclass(frozen=True)
class Processes:
    """Processes of this machine, so many at a time, each with one thread.

    A process does one job after another. If it dies in the middle of one, that job is tried once
    more in another process, from its last checkpoint.
    """

    workers: int
    tries: int = 2
    _started: list[ProcessPoolExecutor] = field(default_factory=list, repr=False, compare=False)

    def run(self, jobs: Sequence[Task], done: Done) -> None:
        """Run all jobs."""
        waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
        for job in jobs:
            waiting.put(job)
        ended: queue.SimpleQueue[tuple[Task, str]] = queue.SimpleQueue()
        stop = threading.Event()
        threads = [
            threading.Thread(target=self._work, args=(waiting, ended, stop), daemon=True)
            for _ in range(min(self.workers, len(jobs)))
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in jobs:
                done(*ended.get())
        except BaseException:  # do not wait for runs that nobody wants; their epochs are kept
            stop.set()
            for child in multiprocessing.active_children():
                child.terminate()
            raise
        finally:
            for thread in threads:
                thread.join()

    def _work(
        self,
        waiting: queue.SimpleQueue[Task],
        ended: queue.SimpleQueue[tuple[Task, str]],
        stop: threading.Event,
    ) -> None:
        """One process at a time: so it is known which job it was at when it died."""
        pool: ProcessPoolExecutor | None = None
        while not stop.is_set():
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                break
            why = ""
            for _ in range(self.tries):
                pool = pool or _one_process()
                try:
                    why = pool.submit(attempt, job).result()
                    break
                except BrokenProcessPool:
                    why = f"its process died {self.tries} times (was there too little memory?)"
                    pool.shutdown(wait=False)
                    pool = None
                    if stop.is_set():
                        return
            ended.put((job, why))
        if pool is not None:
            pool.shutdown()


def _one_process() -> ProcessPoolExecutor:
    # spawn: a forked child would inherit torch's thread pool in an unusable state
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Let a process end when the one that started it was killed: nobody would give it more."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def attempt(job: Task) -> str:
    """Run one job and return why it failed, in words; nothing if it did not."""
    try:
        _run_at_home(job)
    except Exception as reason:
        words = " ".join(str(reason).split())
        ours = isinstance(reason, ClasswiseError)
        return words if ours and words else f"{type(reason).__name__}: {words}"
    return ""


def _run_at_home(job: Task) -> None:
    """Run a job where it is, or here for a while if it is kept at a URL."""
    if job.home:
        maker = None if isinstance(job, NetworkJob) else job.maker
        names = [job.path.name, *([maker.path.name] if maker else [])]
        with brought_here(job.home, names) as folder:
            _run_at_home(job.moved(folder))
    elif isinstance(job, NetworkJob):
        job.run()
    else:
        run_job(job)


def run_job(job: Job) -> None:
    """Train and audit one run, in a process of its own."""
    import torch

    from classwise.doors.targets import audit_target
    from classwise.doors.universality import similarity
    from classwise.doors.wish import Wish
    from classwise.recipe_text import parse_recipe
    from classwise.training.loop import train

    torch.set_num_threads(job.threads)
    recipe = parse_recipe(job.recipe, imports=job.imports)
    given, data = _features(job)
    # Another study may be at the same run: wait for it, and find the run finished.
    run = train(recipe, job.config, out=job.path, resume=True, wait=True, device=job.device,
                quiet=True, source=given)  # fmt: skip
    for audit in job.audits:
        weights = weights_meant(run.weights, audit.weights)
        if weights or not audit.weights:
            audit_target(
                Wish(str(job.path), data=data, attacks=audit.attacks, weights=",".join(weights),
                     limit=audit.limit, split=audit.split, device=job.device, quiet=True)
            )  # fmt: skip
        for name in weights if audit.similarity else ():
            similarity(
                job.path, weights=name, split=audit.split, limit=audit.limit, device=job.device
            )


def _features(job: Job) -> tuple[DataSource | None, str | None]:
    """The features that a run learns from, made first, and the data whose test part judges it."""
    if job.maker is None or job.features is None:
        return None, None
    # Who makes them may not be trained yet.
    run_job(replace(job.maker, device=job.device, threads=job.threads))
    folder = job.path.parent / "features"
    return job.features.open(job.maker.path, folder, job.device), job.maker.config.data


def weights_meant(there: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Those weights of a run that are named; `averaged-last` is its average's, or else its own.

    >>> there = ["best", "ema-best", "ema-last", "last"]
    >>> weights_meant(there, ["last", "averaged-best"]), weights_meant(["last"], ["averaged-last"])
    (['ema-best', 'last'], ['last'])
    """
    meant = set(wanted)
    for average, keep in map(average_and_keep, wanted):
        if average == AVERAGED:
            averages = {name for name in there if name.endswith(f"-{keep}")}
            meant |= averages or {keep}
    return [name for name in there if name in meant]
