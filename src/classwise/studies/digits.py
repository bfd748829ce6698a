"""Every family of methods on the embedded digits: a table one can make over lunch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from classwise.recipe_text import modules_of, parse_recipe
from classwise.report.runs import ReportRun
from classwise.report.seeds import SeedRow, seed_rows
from classwise.spelling import spell_eps
from classwise.studies.grid import Job, jobs_of
from classwise.training.config import TrainConfig

RECIPES = (
    "clean",
    "at",
    "at+ema",
    "at+ccm",
    "at+cfa",
    "at+ccm+fairtat",
    "at+cost(equalise=1)",
    "at+target(to=weakest)",
    "at+cosine",
    "at+avmixup",
    "at+labelaug",
    "at+idbh",
    "at+awp",
    "fat",
    "mart",
    "trades",
    "trades+cfa",
    "trades+frl",
    "trades+wat",
    "trades+dafa",
    "trades+bat",
)
# Smaller than the quickstart, so that a hundred runs take minutes, not hours. The radius is one
# at which adversarial training of so small a network still learns.
CONFIG = TrainConfig(
    data="digits",
    model="cnn(width=8)",
    eps=0.15,
    epochs=20,
    batch_size=32,
    optimiser="adamw",
    lr=3e-3,
    valid="0.1",
)
ATTACKS = "clean,pgd-20"
SECONDS = 11.0  # a run on two cores, roughly: 22 on one
MEASURES = ("average", "worst", "best", "spread")


@dataclass(frozen=True)
class Variation:
    """One default changed for every recipe, to see which differences between rows hang on it."""

    title: str
    added: str = ""  # a method beside every recipe
    changes: Mapping[str, Any] = field(default_factory=dict)  # of the training configuration

    def jobs(self, seeds: int, folder: Path) -> list[Job]:
        """Runs of the varied recipes; those of the study itself are where the study has them."""
        where = folder if self == VARIATIONS[0] else folder / self.title.replace(" ", "-")
        recipes = [f"{recipe}+{self.added}" if self.added else recipe for recipe in VARIED]
        config = CONFIG.model_copy(update=dict(self.changes))
        return jobs_of(recipes, seeds, config, ATTACKS, where)


VARIATIONS = (
    Variation("as in the study"),
    Variation("moved by a pixel", added="crop(pad=1)"),
    Variation("cosine schedule", changes={"schedule": "cosine"}),
    Variation("a quarter for validation", changes={"valid": "0.25"}),
)
# What the reading of the study speaks of; a recipe with an augmentation of its own cannot be moved.
VARIED = ("at", "at+ccm", "at+awp", "trades", "trades+wat", "trades+dafa")


def study_jobs(seeds: int, folder: Path, also: Sequence[str] = ()) -> list[Job]:
    """Every recipe with every seed; `also` are recipes of the user's own words beside ours."""
    for text in also:
        parse_recipe(text)  # a mistake is told before the first run
    recipes = list(dict.fromkeys([*RECIPES, *also]))
    imports = tuple(module for text in also for module in modules_of(text))
    return jobs_of(recipes, seeds, CONFIG, ATTACKS, folder, imports)


def variations_markdown(found: Mapping[str, Sequence[ReportRun]], seeds: int) -> str:
    """A row per recipe, a column per variation: robust average / robust worst class."""
    columns = {
        title: {_plain(row.label): row for row in seed_rows(runs)} for title, runs in found.items()
    }
    labels = dict.fromkeys(label for rows in columns.values() for label in rows)
    lines = ["| recipe | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]
    for label in labels:
        cells = [_pair(rows.get(label)) for rows in columns.values()]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    about = (
        f"{_setting(seeds)}: robust average / robust worst class, each mean ± sample deviation in "
        "per cent (PGD-20, judged where it ends); one default is changed for all recipes at a "
        "time. Small scale: not a result of the papers."
    )
    return "\n".join([about, "", *lines, ""])


def _setting(seeds: int) -> str:
    size = f"{CONFIG.epochs} epochs, {seeds} seeds"
    return f"digits (8×8), `{CONFIG.model}`, eps {spell_eps(CONFIG.eps)} (Linf), {size}"


def _plain(label: str) -> str:
    """The recipe without the method that a variation added."""
    for variation in VARIATIONS:
        if variation.added:
            label = label.replace(f"+{variation.added.partition('(')[0]}", "")
    return label


def _pair(row: SeedRow | None) -> str:
    cells = [] if row is None else [row.cells.get((m, "robust")) for m in ("average", "worst")]
    words = [f"{100 * c.over.mean:.1f} ± {100 * c.over.deviation:.1f}" for c in cells if c]
    return " / ".join(words) or "–"


def markdown(runs: Sequence[ReportRun], seeds: int) -> str:
    """The table: mean ± sample deviation over seeds, in per cent."""
    heads = [f"{measure}, {side}" for measure in MEASURES for side in ("clean", "robust")]
    lines = ["| recipe | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    for row in seed_rows(runs):
        cells = [_cell(row, measure, side) for measure in MEASURES for side in ("clean", "robust")]
        lines.append(f"| {row.label} | " + " | ".join(cells) + " |")
    about = (
        f"{_setting(seeds)}: mean ± sample deviation in per cent; robust is PGD-20, judged "
        "where it ends; the class that is worst most often stands beside the worst accuracy; "
        "spread is the population deviation over classes. Small scale: not a result of the papers."
    )
    return "\n".join([about, "", *lines, ""])


def _cell(row: SeedRow, measure: str, side: str) -> str:
    found = row.cells.get((measure, side))
    if found is None:
        return "–"
    number = f"{100 * found.over.mean:.1f} ± {100 * found.over.deviation:.1f}"
    if measure != "worst" or not found.classes:
        return number
    name, times = found.classes[0]
    return f"{number} ({name} {times}/{found.over.runs})"


def default_folder() -> Path:
    """Where the runs of the study go."""
    return Path("runs/study-digits")
