"""The numbers that the page's scripts draw, small enough for a thousand classes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from classwise.classes.counts import TAIL_FROM
from classwise.judging.metrics import ConditionReport
from classwise.report.groups import page_groupings
from classwise.report.runs import ReportRun
from classwise.report.summary import SIDES, TAIL_SHARE, SummaryRow
from classwise.spelling import few_names
from classwise.statistics.intervals import wilson

MAP_LIMIT = 100  # classes up to which the page draws the whole confusion map
FLOW_LIMIT = 300  # largest confusions listed beyond that
CURVE_BUDGET = 600_000  # numbers in all training curves, about 3 MB
FEWEST_EPOCHS = 10  # never thinned below


def page_data(rows: Sequence[SummaryRow], runs: Sequence[ReportRun]) -> dict[str, Any]:
    """Everything the scripts need; rates are in [0, 1] and the scripts write per cent."""
    report = next(r for row in rows for side in SIDES if (r := row.side(side)))
    return {
        "classes": report.class_names,
        "superclass_of": report.superclass_of,
        "superclasses": superclass_names(report),
        "tail": TAIL_SHARE if len(report.class_names) >= TAIL_FROM else None,
        "map_limit": MAP_LIMIT,
        "rows": [_row(row) for row in rows],
        "groupings": page_groupings(rows),
        "curves": _curves(runs),
    }


def superclass_names(report: ConditionReport) -> list[str] | None:
    """Names of the superclasses in order; None without superclasses."""
    return None if report.by_superclass is None else list(report.by_superclass)


def _row(row: SummaryRow) -> dict[str, Any]:
    sides = {side: _side(report) for side in SIDES if (report := row.side(side))}
    return {"label": row.label, "recipe": row.recipe, "run": row.run, "sides": sides}


def _side(report: ConditionReport) -> dict[str, Any]:
    counts = report.counts
    hits, sizes = counts.confusion.diagonal().numpy(), counts.sizes.numpy()
    low, high = wilson(hits, sizes, report.level)
    flows, mistakes = _flows(report.confusion)
    listed = flows if len(report.class_names) <= MAP_LIMIT else flows[:FLOW_LIMIT]
    tail = report.tail(TAIL_SHARE)
    return {
        "condition": report.condition,
        "overall": _short(report.overall),
        "worst": _short(report.worst),
        "worst_class": few_names(report.names_at(report.worst)),
        "worst_interval": [_short(end) for end in report.worst_interval],
        "worst_if_equal": [_short(value) for value in report.expected_worst_if_equal],
        "tail": _short(tail.mean),
        "tail_classes": tail.classes,
        "hits": hits.tolist(),
        "sizes": sizes.tolist(),
        "low": [_short(end) for end in low],
        "high": [_short(end) for end in high],
        "false_positive_share": [_short(v) for v in counts.false_positive_share.tolist()],
        "one_vs_rest_accuracy": [_short(v) for v in counts.one_vs_rest_accuracy.tolist()],
        "flows": listed.tolist(),  # [true, called, how often], the largest first
        "flow_count": len(flows),
        "mistakes": mistakes,
        "superclass_rates": _superclass_rates(report),
        "superclass_confusion": _superclass_confusion(report),
    }


def _flows(confusion: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    """Off-diagonal cells as [true, called, count] rows, the largest first; and their sum."""
    wrong = confusion.copy()
    np.fill_diagonal(wrong, 0)
    true, called = np.nonzero(wrong)
    count = wrong[true, called]
    order = np.argsort(-count, kind="stable")
    return np.stack([true, called, count], axis=1)[order], int(wrong.sum())


def _superclass_rates(report: ConditionReport) -> list[float | None] | None:
    rates = report.by_superclass
    return None if rates is None else [_short(rate) for rate in rates.values()]


def _superclass_confusion(report: ConditionReport) -> list[list[int]] | None:
    names = superclass_names(report)
    if names is None:
        return None
    group = np.asarray(report.superclass_of)
    merged = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(merged, (group[:, None], group[None, :]), report.confusion)
    return merged.tolist()


def _curves(runs: Sequence[ReportRun]) -> list[dict[str, Any]]:
    """Per-class training curves of every run that has a history."""
    trained = [run for run in runs if run.history]
    numbers = sum(
        len(series["by_class"]) * len(run.history)
        for run in trained
        for series in _series(run.history[-1]).values()
    )
    keep = min(1.0, CURVE_BUDGET / max(1, numbers))
    recipes = Counter(run.recipe for run in trained)
    return [
        {
            "label": run.recipe if recipes[run.recipe] == 1 else f"{run.recipe} [{run.name}]",
            "run": run.name,
            **_curves_of(run.history, max(FEWEST_EPOCHS, round(keep * len(run.history)))),
        }
        for run in trained
    ]


def _curves_of(history: Sequence[dict[str, Any]], most: int) -> dict[str, Any]:
    """At most `most` epochs of every series, evenly spread, the first and the last among them."""
    count = min(most, len(history))
    chosen = sorted({round(i) for i in np.linspace(0, len(history) - 1, count)})
    records = [history[i] for i in chosen]
    read = [_series(record) for record in records]
    titles = list(dict.fromkeys(title for series in reversed(read) for title in series))
    empty = {"overall": None, "by_class": None}
    series = []
    for title in titles:
        points = [one.get(title, empty) for one in read]
        series.append(
            {
                "title": title,
                "rate": not title.startswith("setting"),
                "overall": [_short(point["overall"], 3) for point in points],
                "by_class": [
                    None if point["by_class"] is None else [_short(v, 3) for v in point["by_class"]]
                    for point in points
                ],
            }
        )
    return {
        "epochs": [record["epoch"] for record in records],
        "finished": len(history),
        "series": series,
    }


def _series(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The per-class vectors of one epoch by title: what the loop saw and set."""
    found = {f"training, {name}": rates for name, rates in record.get("train", {}).items()}
    for weights, conditions in record.get("valid", {}).items():
        of = "" if len(record["valid"]) == 1 else f" ({weights})"
        found |= {f"validation, {name}{of}": rates for name, rates in conditions.items()}
    found |= {f"watched, {name}": rates for name, rates in record.get("watch", {}).items()}
    for name, values in record.get("settings", {}).items():
        if values and not isinstance(values[0], list):  # a table of K×K odds is no curve
            found[f"setting, {name}"] = {"overall": None, "by_class": values}
    return found


def _short(value: float | None, digits: int = 4) -> float | None:
    """A few digits are enough to draw; what is not there stays None."""
    return None if value is None or math.isnan(value) else float(f"{value:.{digits}g}")
