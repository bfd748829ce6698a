"""Steps and bookkeeping of an epoch with few and with many classes."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from measuring import limit, timed

from classwise import Run, TrainConfig, load_recipe
from classwise.data.dataset import Dataset, DataSource
from classwise.memory import keep_freed_memory
from classwise.training.fluctuation import fluctuations
from classwise.training.loop import Trainer
from classwise.training.progress import TrainProgress
from classwise.training.resume import Checkpoints, Logs

NET, BATCH = "resnet9(width=16)", 128
BATCHES = 391  # of a real epoch: 50 000 images
FEW, MANY = 10, 1000  # classes
ALIKE = 1.05  # the most that a hundred times as many classes may cost
RECIPES = ("at", "at+ccm(margin_floor=0.5)+fairtat")  # the second has a table of classes by classes


class Spent(NamedTuple):
    """Seconds of one batch, and of all that follows an epoch: policies, record, state."""

    step: float
    after: float

    @property
    def epoch(self) -> float:
        """Seconds of a real epoch."""
        return BATCHES * self.step + self.after


def part_classes(args: argparse.Namespace) -> None:
    """An epoch with 10 and with 1000 classes, in turns: its steps, and what comes after them."""
    turns = args.turns + 2
    print(f"\n## {FEW} and {MANY} classes, `{NET}`, best of {turns} turns (median)\n")
    print("After an epoch come class policies, averages, the record and the saved state; "
          "validation costs by its images, and there are none here.\n")  # fmt: skip
    print(f"| recipe | a step: {FEW} | {MANY} | after an epoch: {FEW} | {MANY} "
          f"| of an epoch of {BATCHES} steps | an epoch, times |")  # fmt: skip
    print("| --- " * 7 + "|")
    for recipe in RECIPES:
        with tempfile.TemporaryDirectory() as folder:
            runs = [one_epoch(recipe, k, Path(folder) / str(k)) for k in (FEW, MANY)]
            found: list[list[Spent]] = [[], []]
            for number in range(turns):
                for place in (0, 1) if number % 2 else (1, 0):
                    found[place].append(runs[place]())
        _row(recipe, found)


def _row(recipe: str, found: list[list[Spent]]) -> None:
    """One line of the table; its limit."""
    best = [Spent(*(min(column) for column in zip(*some, strict=True))) for some in found]
    usual = [Spent(*map(statistics.median, zip(*some, strict=True))) for some in found]
    cells = [
        f"{1000 * b:.1f} ms ({1000 * u:.1f})"
        for few_many in zip(zip(*best, strict=True), zip(*usual, strict=True), strict=True)
        for b, u in zip(*few_many, strict=True)
    ]
    few, many = best
    share, times = many.after / many.epoch, many.epoch / few.epoch
    print(f"| `{recipe}` | {' | '.join(cells)} | {share:.2%} | **{times:.3f}** |", flush=True)
    limit(times <= ALIKE, f"{recipe}, {MANY} classes: {times:.3f} times {FEW}, not {ALIKE}")


def one_epoch(recipe: str, classes: int, folder: Path) -> Callable[[], Spent]:
    """An epoch of one batch of random images, as the loop takes it; each call is the same one."""
    keep_freed_memory()
    config = TrainConfig(model=NET, batch_size=BATCH, lr=1e-3, schedule="constant", valid="0")
    source = made_up(classes)
    trainer = Trainer(Run(folder), load_recipe(recipe), config, source, torch.device("cpu"))
    trainer.run.claim(trainer.about)
    silent = TrainProgress(recipe, config.epochs, 0, 1, quiet=True)
    whose = trainer.about["identity"]
    saved = Checkpoints(trainer.run, whose, trainer.model, trainer.optimiser, trainer.device)
    begin = trainer.apply_policies(trainer.beginning(), {})

    def turn() -> Spent:
        (state, counts, losses), step = timed(lambda: trainer.run_epoch(begin, silent))

        def finish() -> None:
            after, record = trainer.boundary(state, counts, losses)
            record["fluctuation"] = fluctuations(record, record)
            logs = Logs(folder)
            logs.add("history.jsonl", record)
            saved.save(after, logs)

        return Spent(step, timed(finish)[1])

    return turn


def made_up(classes: int, count: int = BATCH, side: int = 32) -> DataSource:
    """Random images of random classes."""
    rng = torch.Generator().manual_seed(0)
    images = torch.randint(256, (count, 3, side, side), generator=rng, dtype=torch.uint8)
    labels = torch.randint(classes, (count,), generator=rng)
    names = tuple(f"class {number}" for number in range(classes))
    data = Dataset(images, labels, names, mirrored=False, moved=0)
    return DataSource("made up", data, data)
