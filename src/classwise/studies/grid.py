"""Train and audit a grid of recipes and seeds, several at a time; what is there is not redone."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from classwise.errors import ClasswiseError
from classwise.training.config import TrainConfig


@dataclass(frozen=True)
class Job:
    """One run of a grid."""

    recipe: str
    config: TrainConfig
    attacks: str
    path: Path
    imports: tuple[str, ...] = ()  # modules of the user's that its recipe may name


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
            attacks,
            folder / f"{recipe}-s{seed}",
            imports,
        )
        for seed in range(seeds)
        for recipe in recipes
    ]


def run_grid(jobs: Sequence[Job], *, workers: int, console: Console) -> list[Path]:
    """Run all jobs in `workers` processes of one thread each, and return the run folders."""
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    failed: list[str] = []
    # spawn: a forked child would inherit torch's thread pool in an unusable state
    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(workers, mp_context=context) as pool,
        Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console) as progress,
    ):
        task = progress.add_task(f"{len(jobs)} runs, {workers} at a time", total=len(jobs))
        waiting = {pool.submit(run_job, job): job for job in jobs}
        try:
            for done in as_completed(waiting):
                error = done.exception()
                if error is not None:
                    failed.append(f"{waiting[done].path.name}: {error}")
                progress.advance(task)
        except KeyboardInterrupt:  # do not wait for runs that nobody wants; their epochs are kept
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
    if failed:
        raise ClasswiseError(f"{len(failed)} of {len(jobs)} runs failed; first: {failed[0]}")
    return [job.path for job in jobs]


def run_job(job: Job) -> None:
    """Train and audit one run on one thread, in a process of its own."""
    import torch

    from classwise.doors.targets import audit_target
    from classwise.doors.wish import Wish
    from classwise.recipe_text import parse_recipe
    from classwise.training.loop import train

    torch.set_num_threads(1)
    recipe = parse_recipe(job.recipe, imports=job.imports)
    train(recipe, job.config, out=job.path, resume=True, device="cpu", quiet=True)
    audit_target(Wish(str(job.path), attacks=job.attacks, device="cpu", quiet=True))
