"""What a run will cost, before it runs: a few batches of every kind of work, timed and multiplied.

Nothing stops early here, neither an attack inside training nor the search of an audit, since an
untrained network falls at once and a trained one does not: the estimate is the longer of the two.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch

from classwise.attacks.inner import Moment, View
from classwise.attacks.threat import Threat
from classwise.classes.settings import Seen
from classwise.data.batches import Batches
from classwise.data.dataset import DataSource
from classwise.data.sources import data_to_train_on
from classwise.memory import PeakMemory, keep_freed_memory
from classwise.progress import spell_seconds
from classwise.recipe import Method, Recipe
from classwise.recipe_text import load_recipe
from classwise.training.config import TrainConfig, choose_device, configured
from classwise.training.loop import Trainer
from classwise.training.progress import TrainProgress
from classwise.training.record import keep_weights
from classwise.training.resume import Checkpoints, Logs
from classwise.training.run import Run

Clock = Callable[[], float]
MOMENTS = 5  # of a run at which its batches are timed: schedules make early ones cheaper
TURNS = 3  # batches at each, the first to warm up
SLOW = 5.0  # seconds from which once is enough
FEW = 64  # images of the first look at held-out data


class Part(NamedTuple):
    """One kind of work: how often a run does it, and how long it takes each time."""

    name: str
    times: int
    each: float  # seconds

    @property
    def seconds(self) -> float:
        """All of it together."""
        return self.times * self.each


@dataclass(frozen=True)
class Estimate:
    """Time and memory of a whole run; `print` it, or look at its parts."""

    title: str
    parts: tuple[Part, ...]
    memory: int | None  # peak of the process, or of the GPU, in bytes; None where nobody can tell
    stops: bool = False  # whether its attack may end early, and so the run

    @property
    def seconds(self) -> float:
        """The whole run."""
        return sum(part.seconds for part in self.parts)

    def __str__(self) -> str:
        held = "" if self.memory is None else f", peak memory {spell_bytes(self.memory)}"
        about = "at most about" if self.stops else "about"
        lines = [f"{self.title}: {about} {spell_seconds(self.seconds)}{held}"]
        for part in self.parts:
            each = f"{part.times} × {spell_seconds(part.each)}" if part.times > 1 else ""
            lines.append(f"  {part.name:<20} {spell_seconds(part.seconds):>8}  {each}".rstrip())
        return "\n".join(lines)


def estimate(
    recipe: str | Recipe | Method,
    config: TrainConfig | None = None,
    *,
    device: str = "auto",
    source: DataSource | None = None,
    imports: Sequence[str] = (),
    clock: Clock = time.perf_counter,
    **options: Any,
) -> Estimate:
    """Time a few batches of every kind of work in a run, and say what all of it will take.

    Options are those of `train`, but for `out`: nothing is left behind.

    >>> print(estimate("at", data="digits", eps=0.2, epochs=2))  # doctest: +ELLIPSIS
    at on digits, 2 epochs of ... batches: about ...
      start ...
      steps ...
    """
    began, peak = clock(), PeakMemory(choose_device(device))
    recipe = load_recipe(recipe, imports=imports)
    config = configured(config, options)
    source = data_to_train_on(options.get("data", config.data), source)
    with tempfile.TemporaryDirectory(prefix="classwise-estimate-") as folder:
        run = Run(Path(folder) / "run")
        trainer = Trainer(run, recipe, config, source, choose_device(device))
        keep_freed_memory()
        started = Part("start", 1, clock() - began)
        parts = (started, *Rehearsal(trainer, clock).parts())
    batches = len(trainer.train_data)
    title = f"{recipe.name} on {config.data}, {config.epochs} epochs of {batches} batches"
    return Estimate(title, parts, peak.bytes(), stops=_stops(trainer))


class Rehearsal:
    """The kinds of work of a run, each done a few times by the run's own code."""

    def __init__(self, trainer: Trainer, clock: Clock) -> None:
        self.trainer, self.clock = trainer, clock
        self.begin = trainer.beginning()
        slots = trainer.slots
        views = tuple(View(view.name) for view in slots.extra_views)
        endless = replace(slots, stop=None, extra_views=views)
        trainer.step = replace(trainer.step, slots=endless)
        checker = trainer.checker
        unmoved = Threat(checker.threat.ball, 1e-6 * trainer.config.eps_of_judge)  # nobody falls
        self.checker = replace(checker, slots=endless, threat=unmoved, _read={})

    def parts(self) -> Iterator[Part]:
        """Steps, validation, watching, averages and files, as far as the run has them."""
        trainer, epochs = self.trainer, self.trainer.config.epochs
        yield Part("steps", epochs * len(trainer.train_data), self.seconds_of_batch())
        yield from self._looks("validation", self._validated())
        yield from self._looks("watching", self._watched())
        what = "averages and files" if trainer.slots.averages else "files"
        yield Part(what, epochs, self._seconds_of_files())

    def seconds_of_batch(self) -> float:
        """A training batch, as the mean over the run."""
        epochs, found = self.trainer.config.epochs, list[float]()
        for number in range(min(MOMENTS, epochs)):
            epoch = int((number + 0.5) * epochs / min(MOMENTS, epochs))
            found.append(self._batches_at(epoch))
            if found[0] >= SLOW and number:
                break
        return statistics.fmean(found)

    def _batches_at(self, epoch: int) -> float:
        watch = _Stopwatch(self.clock, self.trainer.device)
        with suppress(_EnoughError):
            self.trainer.run_epoch(replace(self.begin, epoch=epoch), watch)
        return statistics.median(watch.seconds[1:] or watch.seconds)

    def _validated(self) -> Counter[frozenset[Seen]]:
        """How often validation looks for what."""
        trainer, epochs = self.trainer, self.trainer.config.epochs
        found = Counter([trainer.chain.needs(0)])
        for epoch in range(1, epochs + 1):
            found[trainer.chain.needs(epoch) | trainer.checks] += 1
            averages = [a for a in self.begin.averages if a.first_epoch(epochs) <= epoch]
            found[trainer.checks] += len(averages)
        return found

    def _watched(self) -> Counter[frozenset[Seen]]:
        """How often the passive looks are taken, each average at its own."""
        config, found = self.trainer.config, Counter[frozenset[Seen]]()
        every = self.trainer.cadence.every
        looks = len({*range(every, config.epochs + 1, every), config.epochs})
        for average in ("", *(one.rule.name for one in self.begin.averages)):
            needs = frozenset(one.seen for one in self.trainer.watched if one.average == average)
            found[needs] += looks
        return found

    def _looks(self, name: str, wanted: Counter[frozenset[Seen]]) -> Iterator[Part]:
        """Looks at held-out images, from what a few images take."""
        seconds, times = 0.0, 0
        for needs, count in wanted.items():
            each = sum(
                self._seconds_of_look(needs, split)
                for split in {seen.split for seen in needs} & self.checker.splits.keys()
            )
            seconds, times = seconds + count * each, times + count * bool(each)
        if times:
            yield Part(name, times, seconds / times)

    def _seconds_of_look(self, needs: frozenset[Seen], split: str) -> float:
        whole, config = self.checker.splits[split], self.trainer.config
        moment = Moment(config.seed, config.epochs, config.epochs)
        if not len(whole.labels):
            return 0.0
        seconds = 0.0
        for few in (min(FEW, whole.batch_size), 2 * whole.batch_size):
            batches = self._known(whole, few)
            checker = replace(self.checker, splits={split: batches})
            began = self.clock()
            checker.look(self.trainer.model, needs, moment)
            _wait(self.trainer.device)
            spent = self.clock() - began
            seconds = spent * len(whole.labels) / len(batches.labels)
            if spent >= SLOW:
                break
        return seconds

    def _known(self, whole: Batches, few: int) -> Batches:
        """The first images of a split, labelled as the model sees them, so that all are right."""
        cut = replace(
            whole, images=whole.images[:few], labels=whole.labels[:few], origin=whole.origin[:few]
        )
        self.trainer.model.eval()
        with torch.no_grad():
            seen = [self.trainer.model(batch.images).argmax(1) for batch in cut.in_order()]
        return replace(cut, labels=torch.cat(seen))

    def _seconds_of_files(self) -> float:
        """What is taken into averages and written down after an epoch, in a folder that goes."""
        trainer, run, epochs = self.trainer, self.trainer.run, self.trainer.config.epochs
        run.claim(trainer.about)
        saved = Checkpoints(
            run, trainer.about["identity"], trainer.model, trainer.optimiser, trainer.device
        )
        began = self.clock()
        ungated = [replace(a, rule=replace(a.rule, gate=None)) for a in self.begin.averages]
        averages = tuple(a.update(trainer.model, epochs, epochs, None) for a in ungated)
        for prefix in ("", *(f"{average.rule.name}-" for average in averages)):
            keep_weights(run, trainer.model, prefix, trainer.keeps, None, {}, epochs)
        saved.save(replace(self.begin, averages=averages), Logs(run.path))
        return self.clock() - began


def spell_bytes(size: int) -> str:
    """An amount of memory.

    >>> spell_bytes(310_000_000), spell_bytes(2_340_000_000)
    ('310 MB', '2.3 GB')
    """
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"


class _EnoughError(Exception):
    """So many batches will do."""


class _Stopwatch(TrainProgress):
    """Notes when batches are done, and ends the epoch after a few."""

    def __init__(self, clock: Clock, device: torch.device) -> None:
        super().__init__("", 1, 0, 1, quiet=True)
        self.clock, self.device, self.seconds = clock, device, list[float]()
        self.last = clock()

    def batch(self) -> None:
        """Note one batch."""
        _wait(self.device)
        now = self.clock()
        self.seconds.append(now - self.last)
        self.last = now
        if len(self.seconds) == TURNS or self.seconds[-1] >= SLOW:
            _enough()


def _enough() -> NoReturn:
    raise _EnoughError


def _stops(trainer: Trainer) -> bool:
    slots = trainer.slots
    return slots.stop is not None or any(view.stop is not None for view in slots.extra_views)


def _wait(device: torch.device) -> None:
    """Let a GPU finish what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
