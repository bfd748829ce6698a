"""The same recipe trained with several seeds: mean and sample deviation, with n."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from classwise.report.runs import ReportRun
from classwise.report.summary import MEASURES, SIDES, SummaryRow, measured, summary_rows


@dataclass(frozen=True)
class Over:
    """A number over several seeds."""

    mean: float
    deviation: float  # sample deviation, n − 1 in the denominator
    classes: tuple[tuple[str, int], ...]  # who was worst or best, and how often


@dataclass(frozen=True)
class SeedRow:
    """One row of a table over seeds."""

    label: str
    seeds: tuple[int, ...]
    numbers: dict[tuple[str, str], Over]  # by (measure, side)


def over_seeds(runs: Sequence[ReportRun]) -> list[SeedRow]:
    """Group runs that differ in nothing but their seed; a recipe with one seed gives no row."""
    groups: dict[str, list[tuple[int, SummaryRow]]] = {}
    for run in runs:
        config = dict(run.about.get("config", {}))
        seed = config.pop("seed", None)
        if seed is None:
            continue
        settled = json.dumps([run.about.get("recipe"), config], sort_keys=True)
        for row in summary_rows(run.audits):
            what = [settled, row.weights, row.split, row.attack, row.eps, row.norm]
            groups.setdefault(json.dumps(what), []).append((seed, row))
    rows = [_seed_row(found) for found in groups.values()]
    return [row for row in rows if len(row.seeds) > 1]


def _seed_row(found: Sequence[tuple[int, SummaryRow]]) -> SeedRow:
    by_seed = dict(found)  # the same seed twice is the same run
    rows = list(by_seed.values())
    numbers = {}
    for measure in MEASURES:
        for side in SIDES:
            reports = [report for row in rows if (report := row.side(side))]
            values = [measured(report, measure) for report in reports]
            rates = [value for value, _ in values if value is not None]
            names = Counter(name for _, classes in values for name in classes)
            if len(rates) == len(rows) and len(rows) > 1:
                deviation = statistics.stdev(rates)
                numbers[measure, side] = Over(
                    statistics.fmean(rates), deviation, tuple(names.most_common())
                )
    return SeedRow(rows[0].label, tuple(sorted(by_seed)), numbers)
