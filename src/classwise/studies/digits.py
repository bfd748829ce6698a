"""Every family of methods on the embedded digits: a table one can make over lunch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from classwise.quickstart import CONFIG as CONFIG
from classwise.report.runs import ReportRun
from classwise.report.seeds import SeedRow, seed_rows

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
