"""What the runs of a study will cost, from a few timed batches of each kind of run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from classwise.attacks.fixed_steps import FixedSteps
from classwise.attacks.names import parse_conditions
from classwise.attacks.threat import Threat
from classwise.errors import ClasswiseError
from classwise.progress import spell_seconds
from classwise.studies.planned import PlannedRun
from classwise.training.config import TrainConfig
from classwise.training.estimate import estimate


@dataclass(frozen=True)
class Cost:
    """Seconds of one core for each run, or why nobody can tell; searches are not counted."""

    seconds: dict[str, float]  # by the key of the run
    unknown: dict[str, str]
    searches: int  # audits by searches such as autoattack, which are left out

    def hours(self, workers: int) -> float:
        """All runs, so many at a time."""
        return sum(self.seconds.values()) / workers / 3600

    def words(self, workers: int) -> str:
        """What a user reads."""
        spelled = spell_seconds(3600 * self.hours(workers))
        lines = f"{len(self.seconds)} runs: about {spelled} with {workers} at a time"
        if self.searches:
            lines += f", and {self.searches} audits by searches, which are not counted"
        if self.unknown:
            lines += f"; of {len(self.unknown)} runs it is not known ({_first(self.unknown)})"
        return lines


def cost_of(
    runs: Sequence[PlannedRun],
    clock: Callable[[], float] = time.perf_counter,
) -> Cost:
    """Time a few batches for every kind of run; seeds and radii cost the same."""
    import torch

    seconds: dict[str, float] = {}
    unknown: dict[str, str] = {}
    timed: dict[tuple[object, ...], float | str] = {}
    searches = 0
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for run in runs:
            kind = _kind(run)
            if kind not in timed:
                timed[kind] = _timed(run, clock)
            found = timed[kind]
            if isinstance(found, str):
                unknown[run.key] = found
            else:
                seconds[run.key] = found
            searches += sum(not _counted(run, name) for a in run.audits for name in a.attacks)
    finally:
        torch.set_num_threads(threads)
    return Cost(seconds, unknown, searches)


def _kind(run: PlannedRun) -> tuple[object, ...]:
    config, slots = run.config, run.recipe.slots
    alike = (config.data, config.model, config.epochs, config.subset, config.batch_size)
    looks = (config.watch, config.watch_every, tuple(a.attacks for a in run.audits))
    return (run.recipe.name, slots.steps, *alike, *looks)


def _timed(run: PlannedRun, clock: Callable[[], float]) -> float | str:
    """Seconds of training and of audits with a fixed number of steps, timed as looks are."""
    config = run.config
    kept = 1 + len(run.recipe.slots.averages)
    total = 0.0
    try:
        total += estimate(run.recipe, config, device="cpu", clock=clock).seconds
        for audit in run.audits:
            looks = [f"test:{name}" for name in audit.attacks if _counted(run, name)]
            if not looks or audit.split != "test":
                continue
            watched = {**config.model_dump(), "watch": ",".join(looks), "watch_every": 1}
            once = TrainConfig(**{**watched, "epochs": 1, "warmup": 0, "eps_warmup": 0})
            parts = estimate(run.recipe, once, device="cpu", clock=clock).parts
            total += kept * len(audit.weights) * sum(
                part.seconds for part in parts if part.name == "watching"
            )  # fmt: skip
    except ClasswiseError as reason:
        return str(reason)
    return total


def _counted(run: PlannedRun, name: str) -> bool:
    """Whether an attack has a fixed number of steps."""
    threat = Threat.of(run.config.eps_of_judge, run.config.norm)
    (condition,) = parse_conditions(name, threat, own=False)
    attack = condition.attack
    return condition.shift is None and (attack is None or isinstance(attack, FixedSteps))


def _first(unknown: dict[str, str]) -> str:
    return next(iter(unknown.values()))
