"""Laws of whole runs: they train, repeat and resume bit for bit, and leave randomness alone."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from classwise.data.dataset import DataSource
from classwise.laws.made_up import Subject, few_digits, must, write_teacher
from classwise.locks import FolderLock
from classwise.training.config import TrainConfig
from classwise.training.loop import Trainer, train
from classwise.training.progress import TrainProgress
from classwise.training.run import Run
from classwise.training.state import Progression

QUICK: dict[str, Any] = {
    "eps": 0.2,
    "batch_size": 16,
    "lr": 0.05,
    "valid": "0.3",
    "model": "cnn(width=2)",
    "valid_attack": "pgd-2",
}


@contextlib.contextmanager
def _with_teacher(subject: Subject, folder: Path, source: DataSource) -> Iterator[None]:
    """Put an untrained teacher where the method looks for one, if that is a relative path."""
    teacher = subject.recipe.slots.teacher
    if teacher is None or Path(teacher).is_absolute():
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(folder):
        write_teacher(Path(teacher), source)
        yield


def _run(subject: Subject, folder: Path, source: DataSource | None = None, **options: Any) -> Run:
    source = few_digits() if source is None else source
    config = TrainConfig(**{**QUICK, "epochs": 2, **options})
    with _with_teacher(subject, folder.parent, source):
        recipe = subject.recipe
        return train(
            recipe, config, out=folder, resume=True, source=source, device="cpu", quiet=True
        )


def any_number_of_classes_trains(subject: Subject, folder: Path) -> None:
    """Two epochs train with finite losses and settings, also with 2 classes or an empty one."""
    for classes, missing in ((2, ()), (3, (1,)), (10, ())):
        source = few_digits(classes=classes, missing=missing)
        run = _run(subject, folder / f"{classes} classes", source)
        must(run.finished_epochs == 2, "it did not train for two epochs")
        for epoch in run.history:
            for name, loss in epoch["loss"].items():
                must(math.isfinite(loss), f"the loss {name} is {loss} with {classes} classes")
            for name, table in epoch["settings"].items():
                finite = torch.isfinite(torch.tensor(table)).all()
                must(finite, f"the setting {name} is not finite with {classes} classes")
            for rates in epoch["train"].values():
                unknown = [k for k, rate in enumerate(rates["by_class"]) if rate is None]
                must(unknown == list(missing), "a class with samples has no accuracy, or the rest")


def the_same_seed_gives_the_same_bytes(subject: Subject, folder: Path) -> None:
    """Two runs of one seed are the same, bit for bit; another seed gives another run."""
    one = _run(subject, folder / "one")
    with _other_random_state():
        two = _run(subject, folder / "two")
    _must_be_same(one, two, "a second run of the same seed")
    other = _record(_run(subject, folder / "three", seed=1))
    must(
        _record(one)["weights/last.safetensors"] != other["weights/last.safetensors"],
        "another seed gives the same weights",
    )


def a_broken_run_goes_on_bit_for_bit(subject: Subject, folder: Path) -> None:
    """A run that breaks off in the middle of an epoch ends as the straight one does."""
    straight = _run(subject, folder / "straight", epochs=3)
    config = TrainConfig(**{**QUICK, "epochs": 3})
    for epoch in (1, 2):
        run, source = Run(folder / f"broken in epoch {epoch + 1}"), few_digits()
        with _with_teacher(subject, folder, source), contextlib.suppress(_BreakOff):
            trainer = _BreaksOff(run, subject.recipe, config, source, torch.device("cpu"))
            trainer.fatal = epoch
            run.claim(trainer.about)
            with FolderLock(trainer.run.path, "training") as lock:
                trainer.go(quiet=True, lock=lock)
        must(run.finished_epochs == epoch, "the run did not break off where it should")
        resumed = _run(subject, run.path, epochs=3)
        _must_be_same(straight, resumed, f"a run resumed after epoch {epoch}")


class _BreakOff(Exception):
    """The end of a run that is meant to be resumed."""


class _BreaksOff(Trainer):
    """A run that breaks off after the first batch of an epoch."""

    fatal = -1  # after so many epochs

    def run_epoch(self, state: Progression, progress: TrainProgress) -> Any:
        """Train the epoch, or begin it and break off."""
        return super().run_epoch(state, _Trap() if state.epoch == self.fatal else progress)


class _Trap(TrainProgress):
    """Looks like a progress bar; the first batch springs it."""

    def __init__(self) -> None:
        super().__init__("", 1, 0, 1, quiet=True)

    def batch(self) -> None:
        """Break off."""
        raise _BreakOff


class _Sentinel(_Trap):
    """Looks like a progress bar; compares the global generators from batch to batch."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[Any] = []
        self.drawn = False

    def batch(self) -> None:
        """Note whether the step just taken moved a generator."""
        now = _random_state()
        self.drawn |= bool(self.before) and now != self.before
        self.before = now


def randomness_is_left_alone(subject: Subject, folder: Path) -> None:
    """Neither a run nor a step draws from, or sets, the global random generators."""
    source, config = few_digits(), TrainConfig(**{**QUICK, "epochs": 2})
    before = _random_state()
    _run(subject, folder / "run")
    must(_random_state() == before, "a run moves a global random generator; use moment.draws")
    with _with_teacher(subject, folder, source):
        run = Run(folder / "steps")
        trainer = Trainer(run, subject.recipe, config, source, torch.device("cpu"))
        state = trainer.beginning()
        sentinel = _Sentinel()
        trainer.run_epoch(state, sentinel)
    must(not sentinel.drawn, "a step draws from a global random generator; use moment.draws")


@contextlib.contextmanager
def _other_random_state() -> Iterator[None]:
    """As if somebody else had drawn random numbers meanwhile."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        torch.rand(7)
        random.random()
        np.random.random()  # noqa: NPY002
        yield
    random.setstate(before[0])
    np.random.set_state(before[1])  # noqa: NPY002


def _random_state() -> list[Any]:
    numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002  (only looked at)
    words = repr((numpy_state["state"]["key"].tolist(), numpy_state["state"]["pos"]))
    return [torch.get_rng_state().tolist(), random.getstate(), words]


def _record(run: Run) -> dict[str, bytes]:
    """Everything that must be the same, bit for bit: card, history, state, weights."""
    names = ("run.json", "history.jsonl", "state.safetensors", "weights/*.safetensors")
    files = sorted(file for name in names for file in run.path.glob(name))
    return {str(file.relative_to(run.path)): file.read_bytes() for file in files}


def _must_be_same(one: Run, other: Run, words: str) -> None:
    first, second = _record(one), _record(other)
    must(set(first) == set(second), f"{words} leaves other files: {sorted(second)}")
    differing = [name for name in first if first[name] != second[name]]
    must(not differing, f"{words} differs in {', '.join(differing)}")
