"""Every family of methods on the embedded digits: a table one can make over lunch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from classwise.report.runs import ReportRun
from classwise.report.seeds import SeedRow, seed_rows
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
MEASURES = ("average", "worst", "spread")


def markdown(runs: Sequence[ReportRun], seeds: int) -> str:
    """The table: mean ± sample deviation over seeds, in per cent."""
    heads = [f"{measure}, {side}" for measure in MEASURES for side in ("clean", "robust")]
    lines = ["| recipe | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    for row in seed_rows(runs):
        cells = [_cell(row, measure, side) for measure in MEASURES for side in ("clean", "robust")]
        lines.append(f"| {row.label} | " + " | ".join(cells) + " |")
    about = (
        f"digits (8×8), `{CONFIG.model}`, eps {CONFIG.eps:g} (Linf), {CONFIG.epochs} epochs, "
        f"{seeds} seeds: mean ± sample deviation in per cent; robust is PGD-20, verdict last; "
        "the class that is worst most often stands beside the worst accuracy; spread is the "
        "population deviation over classes. Small scale: not a result of the papers."
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
