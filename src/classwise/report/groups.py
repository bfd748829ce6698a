"""What the page draws of groupings other than the classes: superclasses and the user's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from classwise.judging.groups import CLASS
from classwise.judging.metrics import ConditionReport
from classwise.judging.rates import GroupReport
from classwise.report.summary import SIDES, SummaryRow
from classwise.spelling import few_names
from classwise.statistics.intervals import wilson


def page_groupings(rows: Sequence[SummaryRow]) -> list[dict[str, Any]]:
    """Each grouping with all its groups, and what every row found on both sides.

    Runs may know different groups of one name: each is shown where it was counted.
    """
    reports = [[row.side(side) for side in SIDES] for row in rows]
    names: dict[str, dict[str, None]] = {}
    for report in (one for pair in reports for one in pair if one):
        for grouping, tally in report.groupings.items():
            if grouping != CLASS:
                names.setdefault(grouping, {}).update(dict.fromkeys(tally.names))
    return [
        {
            "name": grouping,
            "names": list(groups),
            "rows": [
                {
                    side: _counted(one, grouping, list(groups))
                    for side, one in zip(SIDES, pair, strict=True)
                }
                for pair in reports
            ],
        }
        for grouping, groups in names.items()
    ]


def _counted(
    report: ConditionReport | None, grouping: str, names: Sequence[str]
) -> dict[str, Any] | None:
    """Counts and intervals; None where it was not audited, or images were chosen by their look."""
    if report is None or grouping not in report.groupings or report.unfinished:
        return None
    tally = report.groupings[grouping].under(names)
    if not tally.sizes.any():
        return None
    found = GroupReport(grouping, report.condition, tally, report.level)
    low, high = wilson(tally.hits, tally.sizes, report.level)
    return {
        "condition": report.condition,
        "hits": tally.hits.tolist(),
        "sizes": tally.sizes.tolist(),
        "low": [_short(end) for end in low.tolist()],
        "high": [_short(end) for end in high.tolist()],
        "worst": _short(found.worst),
        "worst_group": few_names(found.names_at(found.worst)),
        "worst_interval": [_short(end) for end in found.worst_interval],
        "spread": _short(found.spread),
        "gap": _short(found.gap),
        "outside": tally.outside,
        "overlapping": tally.overlapping,
    }


def _short(value: float) -> float | None:
    """A few digits are enough to draw; what is not there is None."""
    return None if math.isnan(value) else float(f"{value:.4g}")
