"""Those who train side by side: we, the released code, and a plain loop around torchattacks.

Each has a process of its own, as its users run it: `classwise` tells the C library to keep freed
memory, and in one process the others would profit from it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import released
import torch
from counting import Work
from nets import STEPPED, lessons, trained
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from classwise import Run, TrainConfig, load_recipe, open_data
from classwise.classes.settings import TRAIN_ROBUST
from classwise.data.dataset import Dataset, DataSource
from classwise.memory import keep_freed_memory
from classwise.models import build_model
from classwise.training.loop import Trainer
from classwise.training.progress import TrainProgress

EPS, STEP, STEPS = 8 / 255, 2 / 255, 10
RATE = 1e-3  # so low that many turns leave a trained network as it is
HELD = 10  # images more than are trained on: some recipes want validation data


class Task(NamedTuple):
    """What a side trains: a recipe and its counterpart, on which network, in which batches."""

    recipe: str
    script: str  # a step of `released`
    network: str
    batch: int
    home: Path
    numbers: tuple[tuple[str, Any], ...] = ()  # of the script
    classwise: bool = False
    precision: str = "float32"  # ours; the script is always in single precision


class Turn(NamedTuple):
    """What one batch took."""

    seconds: float
    flops: int = 0  # where they were counted
    robust: float | None = None  # share of the attacked images that the model knew


def turn(side: str, task: Task, *, count: bool = False) -> Turn:
    """Let a side train one batch, in its own process."""
    return _process(side).submit(_turn, side, task, count).result()


@cache
def _process(side: str) -> ProcessPoolExecutor:  # noqa: ARG001  one for each
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


def _turn(side: str, task: Task, count: bool) -> Turn:
    train = built(side, task)
    with Work() if count else contextlib.nullcontext() as work:
        began = time.perf_counter()
        robust = train()
        seconds = time.perf_counter() - began
    return Turn(seconds, work.flops if work else 0, robust)


@lru_cache(maxsize=1)
def built(side: str, task: Task) -> Callable[[], float | None]:
    """A side that is ready to train; each call trains one batch."""
    torch.manual_seed(0)
    data, state = lesson(task)
    if side == "ours":
        return ours(DataSource("cifar10", data, data), task, state)
    model, (images, labels) = plain_model(task, data, state), floats(data, task.batch)
    if side == "torchattacks":
        return in_a_loop(model, images, labels, dict(task.numbers).get("train_mode", True))
    return as_released(model, images, labels, task, data.num_classes)


def lesson(task: Task) -> tuple[Dataset, dict[str, Tensor] | None]:
    """The images of a task, and the weights that its network begins with, if it is trained."""
    data, model, state = _loaded(task.home, task.batch + HELD)
    return data, state if model == task.network else None


@lru_cache
def _loaded(home: Path, count: int) -> tuple[Dataset, str, dict[str, Tensor]]:
    """Images that the trained network has learned from, its name and its weights; loaded once."""
    run = trained(STEPPED, home)
    data = open_data("cifar10").train
    rows = lessons(data, run, count)
    # neither moved nor mirrored: every side sees the same images
    data = replace(data.subset(rows), mirrored=False, moved=0)
    return data, run.config.model, run.model("last").state_dict()


def floats(data: Dataset, count: int) -> tuple[Tensor, Tensor]:
    """Images between 0 and 1, and their labels."""
    return data.images[:count].float().div_(255), data.labels[:count]


def plain_model(task: Task, data: Dataset, state: dict[str, Tensor] | None) -> nn.Module:
    """The network in the layout that torch gives it."""
    mean, deviation = data.channel_statistics
    model = build_model(
        task.network,
        num_classes=data.num_classes,
        seed=0,
        channels=3,
        mean=mean,
        deviation=deviation,
    )
    if state is not None:
        model.load_state_dict(state)
    model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # torch's types lack it
    return model.train()


def ours(
    source: DataSource, task: Task, state: dict[str, Tensor] | None = None, valid: str = "first:1"
) -> Callable[[], float | None]:
    """An epoch of one batch in the package's own loop, with a second epoch's class settings."""
    keep_freed_memory()
    config = TrainConfig(
        model=task.network,
        batch_size=task.batch + HELD,
        lr=RATE,
        schedule="constant",
        valid=valid,
        precision=task.precision,
    )
    recipe, home = load_recipe(task.recipe), torch.device("cpu")
    trainer = Trainer(Run(Path("runs/none")), recipe, config, source, home)
    assert len(trainer.train_labels) == task.batch, "both sides train on as many images"
    if state is not None:
        trainer.model.load_state_dict(state)
    silent = TrainProgress(recipe.name, config.epochs, 0, 1, quiet=True)
    first = trainer.apply_policies(trainer.beginning(), {})
    after, counts, _ = trainer.run_epoch(first, silent)
    second = trainer.apply_policies(replace(after, epoch=1), counts)

    def train() -> float | None:
        found = trainer.run_epoch(second, silent)[1].get(TRAIN_ROBUST)
        return None if found is None else found.overall

    return train


def as_released(
    model: nn.Module, images: Tensor, labels: Tensor, task: Task, classes: int
) -> Callable[[], None]:
    """A step of the transcription."""
    script = replace(released.Script.alike(classes), **dict(task.numbers))
    if task.classwise:
        script = replace(script, eps=script.eps * torch.linspace(0.6, 1.1, classes))
    pupil, noise = released.Pupil(model, descent(model)), released.Thrown()

    def train() -> None:
        released.STEPS[task.script](pupil, images, labels, script, noise)

    return train


def in_a_loop(
    model: nn.Module, images: Tensor, labels: Tensor, train_mode: bool
) -> Callable[[], None]:
    """What a user of torchattacks writes: its PGD, then one step on what it returns."""
    import torchattacks

    attack = torchattacks.PGD(model, eps=EPS, alpha=STEP, steps=STEPS)
    attack.set_model_training_mode(model_training=train_mode, batchnorm_training=train_mode)
    optimiser = descent(model)

    def train() -> None:
        loss = cross_entropy(model(attack(images, labels)), labels)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch gives it no types
        optimiser.step()

    return train


def descent(model: nn.Module) -> torch.optim.Optimizer:
    """The optimiser of the scripts."""
    return torch.optim.SGD(model.parameters(), RATE, 0.9, weight_decay=5e-4)
