"""The trials as a page that opens without a network: both objectives, and who is beaten by none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from classwise.files import write_atomically
from classwise.report.offline import offline_page
from classwise.tuning.judged import worst_words
from classwise.tuning.search import Tuned
from classwise.tuning.summary import Summary

NAME = "pareto.html"


def write_page(tuned: Tuned) -> Path:
    """Write the page beside the trials."""
    summary = Summary.of(tuned)
    page = offline_page(
        "pareto.html",
        data=_data(summary, tuned),
        head=summary.head,
        rows=summary.rows,
        words=summary.words,
        best=summary.best_words,
        command=summary.command,
        recipe=tuned.search.start.recipe,
    )
    out = tuned.folder / NAME
    write_atomically(out, page.encode())
    return out


def _data(summary: Summary, tuned: Tuned) -> dict[str, Any]:
    points: list[dict[str, Any]] = [
        {
            "x": one.pair.average,
            "y": one.pair.worst,
            "front": one in summary.front,
            "words": f"trial {one.number}: "
            + ", ".join(f"{name} = {value}" for name, value in one.values.items()),
        }
        for one in tuned.complete
        if one.pair is not None
    ]
    points.sort(key=lambda point: point["x"])  # the front is drawn as a line
    best = None if summary.best is None else summary.best.number
    return {"points": points, "worst": worst_words(len(tuned.class_names)), "best": best}
