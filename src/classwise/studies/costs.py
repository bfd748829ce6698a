"""What the runs of a study will cost, from a few timed batches of each kind of run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from classwise.errors import ClasswiseError
from classwise.progress import spell_seconds
from classwise.studies.audit_costs import (
    STANDING,
    Stopwatch,
    data_of,
    seconds_of_audits,
    seconds_of_features,
    seconds_of_network,
)
from classwise.studies.planned import PlannedRun
from classwise.studies.theirs_planned import PlannedNetwork
from classwise.training.estimate import estimate


@dataclass(frozen=True)
class Cost:
    """Seconds of one core for each run, or why nobody can tell."""

    seconds: dict[str, float]  # by the key of the run
    unknown: dict[str, str]

    def hours(self, workers: int) -> float:
        """All runs, so many at a time."""
        return sum(self.seconds.values()) / workers / 3600

    def words(self, workers: int) -> str:
        """What a user reads."""
        spelled = spell_seconds(3600 * self.hours(workers))
        lines = f"{len(self.seconds)} runs: about {spelled} with {workers} at a time"
        lines += f" (searches as if {STANDING:.0%} of the images stood to the end)"
        if self.unknown:
            lines += f"; of {len(self.unknown)} runs it is not known ({_first(self.unknown)})"
        return lines


def cost_of(
    runs: Sequence[PlannedRun],
    clock: Callable[[], float] = time.perf_counter,
    networks: Sequence[PlannedNetwork] = (),
) -> Cost:
    """Time a few batches for every kind of run; seeds and radii cost the same.

    `networks` of other people are timed by their architecture.
    """
    import torch

    seconds: dict[str, float] = {}
    unknown: dict[str, str] = {}
    trained: dict[tuple[object, ...], float] = {}
    timing = Stopwatch(clock)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for run in runs:
            kind, config = _kind(run), data_of(run)
            try:
                if kind not in trained:
                    found = estimate(run.recipe, config, device="cpu", clock=clock)
                    trained[kind] = found.seconds
                beside = seconds_of_features(run, timing) + seconds_of_audits(run, timing)
                seconds[run.key] = trained[kind] + beside
            except ClasswiseError as reason:
                unknown[run.key] = str(reason)
        for one in networks:
            try:
                seconds[one.key] = seconds_of_network(one, timing)
            except ClasswiseError as reason:
                unknown[one.key] = str(reason)
    finally:
        torch.set_num_threads(threads)
    return Cost(seconds, unknown)


def _kind(run: PlannedRun) -> tuple[object, ...]:
    """What decides how long a training takes."""
    config, slots = data_of(run), run.recipe.slots
    alike = (config.data, config.model, config.epochs, config.subset, config.batch_size)
    return (run.recipe.name, slots.steps, *alike, config.watch, config.watch_every)


def _first(unknown: dict[str, str]) -> str:
    return next(iter(unknown.values()))
