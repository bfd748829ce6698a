"""Choose the scale `minutes` of the studies by validation, before any method is compared.

python benchmarks/scales.py [--workers 2] [--data cifar10,cifar100] [--eps 8/255] [--steps 3]
    [--enough] [--runs runs/scales] [--page FILE] [--smoke]

Trains `at` alone, with every setting of GRID, on nine tenths of the training part. The other tenth
judges, clean and under PGD-10 at the radius of training. The test part is not looked at. Whatever
else a run is trained with stands in `minutes` of src/classwise/studies/scales.toml.

The rule, stated before anything was run. A setting qualifies on a data set of K classes if
1. the lower end of the 95 % interval of its average robust accuracy is at least so many times
   chance, 1/K: twice for up to 20 classes, five times for more (2 % of a hundred classes is
   little to be unfair with);
2. its class deviation under attack is at least 1.5 times what equal classes would show on so many
   images by chance, √(p(1−p)/n), and equal classes would differ as much (χ²) with a
   probability below 0.001.
Chosen is the cheapest setting that qualifies on all data that are given: least work, which is
width² × pixels² × images × epochs × (steps + 1), a count that no clock disturbs. If
none qualifies, take a smaller radius with `--eps 4/255`, and say so.

What was trained and judged is kept in `--runs`, so that the same command goes on after a kill. With
`--enough` it ends at the first setting that qualifies on all data. `--smoke` shows on made-up
images that it runs, and nothing else. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from classwise.data.dataset import DataSource
from classwise.data.sources import open_data
from classwise.data.splits import split_indices
from classwise.doors.audit import audit
from classwise.files import write_atomically
from classwise.judging.metrics import ConditionReport
from classwise.recipe_text import parse_recipe
from classwise.spelling import parse_eps
from classwise.statistics.intervals import wilson
from classwise.studies.counted import equal_rates_p_value
from classwise.studies.scale import scale_named
from classwise.training.loop import train
from classwise.training.run import Run

FEW_CLASSES, TIMES_CHANCE_FEW, TIMES_CHANCE_MANY = 20, 2.0, 5.0
TIMES_BINOMIAL, CHANCE_OF_EQUAL = 1.5, 0.001
JUDGING_SHARE = 0.1  # of every class of the training part
ATTACK = "pgd-10"


@dataclass(frozen=True)
class Setting:
    """What a scale is made of; the other settings are those of `minutes`."""

    width: int
    pixels: int
    images: int
    epochs: int
    steps: int = 3
    eps: str = "8/255"

    @property
    def work(self) -> int:
        """How much it costs, in no unit."""
        passes = self.images * self.epochs * (self.steps + 1)
        return self.width**2 * self.pixels**2 * passes

    @property
    def name(self) -> str:
        """Its folder and its row."""
        radius = self.eps.replace("/", "-")
        size = f"w{self.width}-p{self.pixels}-n{self.images}"
        return f"{size}-e{self.epochs}-s{self.steps}-r{radius}"


@dataclass(frozen=True)
class Trial:
    """A setting on one data set, and what it needs in another process."""

    setting: Setting
    data: str
    model: str
    folder: Path


@dataclass(frozen=True)
class Judged:
    """What came of a trial, on images that it was not trained on."""

    trial: Trial
    seconds: float
    clean: ConditionReport
    robust: ConditionReport

    @property
    def by_chance(self) -> float:
        """The class deviation that equal classes would show on so many images."""
        size = float(self.robust.counts.sizes.double().mean())
        classes = len(self.robust.class_names)
        rate = self.robust.overall
        return math.sqrt(rate * (1 - rate) / size * (classes - 1) / classes)

    @property
    def bar(self) -> float:
        """The average robust accuracy that is asked for."""
        classes = len(self.robust.class_names)
        return (TIMES_CHANCE_FEW if classes <= FEW_CLASSES else TIMES_CHANCE_MANY) / classes

    @property
    def missed(self) -> str:
        """Which part of the rule it does not keep; nothing if it qualifies."""
        sizes = int(self.robust.counts.sizes.sum())
        hits = round(self.robust.overall * sizes)
        if wilson(np.array([hits]), np.array([sizes]))[0][0] < self.bar:
            return f"average below {self.bar:.0%}"
        if spread(self.robust) < TIMES_BINOMIAL * self.by_chance:
            return "classes too alike"
        return "" if equal_rates_p_value(self.robust) < CHANCE_OF_EQUAL else "classes too alike"


GRID = sorted(
    [
        *(Setting(8, 16, images, epochs) for images, epochs in ((10_000, 10), (20_000, 10))),
        Setting(8, 16, 20_000, 15),
        *(Setting(16, 16, images, 10) for images in (10_000, 20_000)),
        Setting(16, 16, 20_000, 15),
        *(Setting(8, 32, images, 10) for images in (10_000, 20_000)),
        Setting(16, 32, 10_000, 10),
    ],
    key=lambda setting: setting.work,
)
SMOKE = [Setting(1, 8, images, 1, steps=1) for images in (100, 150)]


def spread(report: ConditionReport) -> float:
    """The deviation between classes."""
    return float(np.std(report.rates))


def divided(source: DataSource) -> DataSource:
    """Training images that train, and others that judge in the place of the test part."""
    training, judging = split_indices(source.train.labels, JUDGING_SHARE, seed=0)
    parts = source.train.subset(training), source.train.subset(judging)
    return DataSource(f"{source.name}, training part alone", *parts)


def judge(trial: Trial) -> Judged:
    """Train `at` and audit it; what is there is not done again."""
    import torch

    torch.set_num_threads(1)
    setting, source = trial.setting, divided(open_data(trial.data))
    recipe = parse_recipe(f"at(steps={setting.steps})")
    options = {"epochs": setting.epochs, "subset": setting.images, "eps": setting.eps}
    recipe, config = scale_named("minutes").resolve(recipe, "paper", {**options, "seed": 0})
    config = config.model_copy(update={"data": source.name, "model": trial.model})
    run = train(recipe, config, out=trial.folder, source=source, resume=True, device="cpu",
                quiet=True)  # fmt: skip
    images = source.test
    report = audit(
        run.model("last"), images.images, images.labels, attacks=("clean", ATTACK), eps=config.eps,
        class_names=images.class_names, out=trial.folder / "judged", name=setting.name,
    )  # fmt: skip
    return Judged(trial, _seconds(run), report["clean"], report[ATTACK])


def _seconds(run: Run) -> float:
    lines = (run.path / "times.jsonl").read_text().splitlines()
    return float(sum(json.loads(line)["seconds"] for line in lines))


def trials(setting: Setting, data: Sequence[str], home: Path, smoke: bool) -> list[Trial]:
    """A setting on every data set; images are averaged where they have too many pixels."""
    found = []
    for name in data:
        if smoke:
            spec = f"madeup({name}, size={setting.pixels}, train={20 if name == 'cifar10' else 4})"
        else:
            spec = name if setting.pixels == 32 else f"pooled({name}, by={32 // setting.pixels})"
        model = f"cnn(width={setting.width})" if smoke else f"resnet9(width={setting.width})"
        found.append(Trial(setting, spec, model, home / f"{name}-{setting.name}"))
    return found


def row(judged: Judged) -> str:
    """A line of the table, in per cent."""
    setting, robust = judged.trial.setting, judged.robust
    zero = sum(rate == 0 for rate in robust.rates)
    numbers = [
        *(f"{100 * one:.1f}" for one in (judged.clean.overall, min(judged.clean.rates))),
        *(f"{100 * one:.1f}" for one in (robust.overall, min(robust.rates))),
        str(zero),
        *(f"{100 * one:.1f}" for one in (spread(robust), judged.by_chance)),
        f"{equal_rates_p_value(robust):.1g}",
    ]
    facts = [setting.width, setting.pixels, setting.images, setting.epochs, setting.steps]
    said = [judged.trial.folder.name.partition("-")[0], *map(str, facts), setting.eps]
    verdict = judged.missed or "qualifies"
    return f"| {' | '.join([*said, f'{judged.seconds:.0f}', *numbers, verdict])} |"


HEAD = (
    "| data | width | pixels | images | epochs | steps | eps | seconds | clean | clean worst | "
    "PGD-10 | PGD-10 worst | classes at 0 | class std | if equal | chance if equal | rule |"
)


def table(found: Sequence[Sequence[Judged]]) -> str:
    """All trials in the order of their work, and which setting the rule chooses."""
    lines = [HEAD, "|" + " --- |" * (HEAD.count("|") - 1)]
    lines += [row(one) for some in found for one in some]
    good = [some[0].trial.setting for some in found if not any(one.missed for one in some)]
    least = min(good, key=lambda setting: setting.work, default=None)
    words = (
        "No setting qualifies on all data; give a smaller radius with --eps."
        if least is None
        else f"Chosen: width {least.width}, {least.pixels} pixels, {least.images} images, "
        f"{least.epochs} epochs, {least.steps} steps, eps {least.eps}: the least work of "
        f"{len(good)} settings that qualify on all data."
    )
    return "\n".join([*lines, "", words, ""])


def main(words: Sequence[str]) -> str:
    """Read the options, run what is missing, and return the table."""
    given = _options(words)
    grid = [
        replace(one, steps=given.steps or one.steps, eps=given.eps or one.eps)
        for one in (SMOKE if given.smoke else GRID)
    ]
    parse_eps(given.eps or grid[0].eps)  # a mistake is told before anything runs
    data, home, found = given.data.split(","), Path(given.runs), list[list[Judged]]()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.workers, mp_context=context) as pool:
        making = map if given.smoke else pool.map  # seconds are not worth a process
        for setting in grid:
            found.append(list(making(judge, trials(setting, data, home, given.smoke))))
            print(*(row(one) for one in found[-1]), sep="\n", file=sys.stderr, flush=True)
            if given.enough and not any(one.missed for one in found[-1]):
                break
    text = table(found)
    if given.page:
        write_atomically(Path(given.page), text.encode())
    return text


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", default="cifar10,cifar100")
    parser.add_argument("--runs", default="runs/scales")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, help="of the attack in training")
    parser.add_argument("--eps", help="of training and judging")
    parser.add_argument("--page", help="a file for the table")
    parser.add_argument("--enough", action="store_true", help="end at the first that qualifies")
    parser.add_argument("--smoke", action="store_true", help="made-up images")
    return parser.parse_args(words)


if __name__ == "__main__":
    print(main(sys.argv[1:]))
