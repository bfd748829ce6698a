"""The same recipe trained with several seeds: mean and sample deviation, with n."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from classwise.report.runs import ReportRun
from classwise.report.summary import MEASURES, SIDES, SummaryRow, measured, summary_rows
from classwise.statistics.worst_class import OverSeeds, over_seeds


@dataclass(frozen=True)
class SeedCell:
    """A number over several seeds, and how often each class was the one it belongs to."""

    over: OverSeeds
    classes: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class SeedRow:
    """One row of a table over seeds."""

    label: str
    seeds: tuple[int, ...]
    cells: dict[tuple[str, str], SeedCell]  # by (measure, side)


def seed_rows(runs: Sequence[ReportRun]) -> list[SeedRow]:
    """Group runs that differ in nothing but their seed; a recipe with one seed gives no row."""
    groups: dict[str, dict[int, SummaryRow]] = {}
    for run in runs:
        config = dict(run.about.get("config", {}))
        seed = config.pop("seed", None)
        if seed is None:
            continue
        settled = {name: value for name, value in config.items() if not name.startswith("watch")}
        for row in summary_rows(run.audits):
            same = [run.about.get("recipe"), settled]
            same += [row.weights, row.split, row.attack, row.eps, row.norm]
            groups.setdefault(json.dumps(same, sort_keys=True), {})[seed] = row
    return [_seed_row(found) for found in groups.values() if len(found) > 1]


def _seed_row(found: dict[int, SummaryRow]) -> SeedRow:
    rows = list(found.values())
    cells = {}
    for measure in MEASURES:
        for side in SIDES:
            pairs = [measured(report, measure) for row in rows if (report := row.side(side))]
            rates = [rate for rate, _ in pairs if rate is not None]
            names = Counter(name for _, classes in pairs for name in classes)
            if len(rates) == len(rows):
                cells[measure, side] = SeedCell(over_seeds(rates), tuple(names.most_common()))
    return SeedRow(rows[0].label, tuple(sorted(found)), cells)
