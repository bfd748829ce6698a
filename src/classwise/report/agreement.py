"""How far runs agree on the classes: for the page, and as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from classwise.judging.agreement import MEASURES
from classwise.judging.similarity import Similarity
from classwise.judging.universal import Agreement, RunDetails
from classwise.report.escaping import csv_cell, markdown_text
from classwise.report.payload import MAP_LIMIT
from classwise.statistics.intervals import Rates
from classwise.statistics.permuted import Together

LISTED = 30  # pairs of classes that are listed of each run


def page_agreement(found: Sequence[Agreement]) -> list[dict[str, Any]]:
    """What the page's scripts draw; the last condition, usually the strongest attack, first."""
    return [_as_dict(one, LISTED, whole=False) for one in reversed(found)]


def json_agreement(found: Sequence[Agreement]) -> str:
    """Everything, as JSON."""
    said = [_as_dict(one, None, whole=True) for one in found]
    return json.dumps({"agreements": said}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _as_dict(found: Agreement, most: int | None, *, whole: bool) -> dict[str, Any]:
    ranks, verdict = found.ranks, found.verdict
    return {
        "condition": found.condition,
        "verdict": verdict.words,
        "same": verdict.same,
        "same_from": found.same_from,
        "runs": list(ranks.runs),
        "weights": [run.weights for run in found.runs],
        "differs": {name: list(values) for name, values in found.differs.items()},
        "classes": list(ranks.class_names),
        "rates": _plain(ranks.rates),
        "sizes": ranks.sizes.tolist(),
        "ranks": _plain(ranks.ranks),
        "measures": {
            name: {
                "title": measure_title(found, name),
                "value": _plain(span.value),
                "low": _plain(span.low),
                "high": _plain(span.high),
            }
            for name, span in ranks.measures.items()
        },
        "mean": [_plain(end) for end in ranks.mean],
        "steady": _plain(ranks.steady),
        "by_chance": _plain(ranks.by_chance),
        "level": ranks.level,
        "draws": ranks.draws,
        "paired": ranks.paired,
        "notes": ranks.notes,
        "details": [_detail(run, most, whole) for run in found.runs],
    }


def _detail(run: RunDetails, most: int | None, whole: bool) -> dict[str, Any]:
    pairs = run.asymmetry.pairs
    epochs = run.over_epochs
    return {
        "name": run.name,
        "uneven": [{n: _plain(v) for n, v in pair._asdict().items()} for pair in pairs[:most]],
        "uneven_sure": len(run.asymmetry.uneven),
        "pairs": len(pairs),
        "similarity": run.similarity and _similar(run.similarity, most, whole),
        "over_epochs": epochs
        and {
            "series": epochs.series,
            "epochs": list(epochs.epochs),
            "worst": list(epochs.worst),
            "rates": _plain(np.array(epochs.rates)),
            "words": epochs.words,
        },
        "remarks": list(run.remarks),
    }


def _similar(found: Similarity, most: int | None, whole: bool) -> dict[str, Any]:
    drawn = whole or len(found.class_names) <= MAP_LIMIT
    return {
        "classes": list(found.class_names),
        "cosines": _plain(found.cosines) if drawn else None,
        "closest": [[a, b, _plain(cosine)] for a, b, cosine in found.closest[:most]],
        "with_confusion": _together(found.with_confusion),
        "with_accuracy": _together(found.with_accuracy),
        "words": found.words,
    }


def _together(found: Together) -> list[Any]:
    return [_plain(value) for value in found]


def measure_title(found: Agreement, name: str) -> str:
    """What a measure is called; of the worst classes also how many."""
    return f"{MEASURES[name]} ({found.ranks.top})" if name == "overlap" else MEASURES[name]


def pair_rows(found: Agreement) -> Iterator[tuple[str, str, dict[str, tuple[float, float, float]]]]:
    """Every pair of runs, the least alike first, with each measure and its interval."""
    for pair in found.ranks.pairs:
        at, names = (pair.first, pair.second), found.ranks.runs
        spans = {
            name: (float(span.value[at]), float(span.low[at]), float(span.high[at]))
            for name, span in found.ranks.measures.items()
        }
        yield names[pair.first], names[pair.second], spans


def class_rows(found: Agreement) -> Iterator[tuple[str, Rates, Rates]]:
    """Every class with its accuracy and rank in each run, the worst by mean rank first."""
    ranks = found.ranks.ranks
    for k in np.argsort(ranks.mean(0), kind="stable"):
        yield found.ranks.class_names[k], found.ranks.rates[:, k], ranks[:, k]


def span_words(value: float, low: float, high: float) -> str:
    """A figure with its interval; a dash where there is none.

    >>> span_words(0.912, 0.8, 1.0), span_words(float("nan"), 0, 0)
    ('0.91 (0.80 to 1.00)', '–')
    """
    return "–" if math.isnan(value) else f"{value:.2f} ({low:.2f} to {high:.2f})"


def csv_agreement(found: Sequence[Agreement]) -> str:
    """One row for every condition and pair of runs."""
    ends = [f"{name}{end}" for name in MEASURES for end in ("", "_low", "_high")]
    rows = [
        [one.condition, first, second, *(_digits(v) for name in MEASURES for v in spans[name])]
        for one in found
        for first, second, spans in pair_rows(one)
    ]
    return _csv(["condition", "first", "second", *ends], rows)


def csv_class_ranks(found: Sequence[Agreement]) -> str:
    """One row for every condition, class and run."""
    rows = [
        [one.condition, name, run, _digits(rate), _digits(rank)]
        for one in found
        for name, rates, ranks in class_rows(one)
        for run, rate, rank in zip(one.ranks.runs, rates, ranks, strict=True)
    ]
    return _csv(["condition", "class", "run", "accuracy", "rank"], rows)


def markdown_agreement(found: Sequence[Agreement]) -> str:
    """Verdict, pairs of runs, ranks of all classes, and what is known of each run."""
    lines: list[str] = []
    for one in found:
        lines += [f"## {markdown_text(one.condition)}", "", markdown_text(one.verdict.words), ""]
        lines += _table(
            ["runs", *(measure_title(one, name) for name in MEASURES)],
            [
                [f"{first} – {second}", *(span_words(*spans[name]) for name in MEASURES)]
                for first, second, spans in pair_rows(one)
            ],
        )
        lines += ["", *(f"{markdown_text(line)}  " for line in caption(one)), ""]
        lines += _table(
            ["class", *one.ranks.runs],
            [
                [name, *(f"{rank:g} ({100 * rate:.1f})" for rate, rank in zip(*two, strict=True))]
                for name, *two in class_rows(one)
            ],
        )
        lines += ["", "Rank of each class, 1 for the worst, and its accuracy in per cent.", ""]
        for run in one.runs:
            lines += [f"- {markdown_text(run.name)}: {markdown_text(w)}" for w in run_words(run)]
        lines.append("")
    return "\n".join(lines)


def caption(found: Agreement) -> list[str]:
    """What stands under a table of agreement."""
    ranks = found.ranks
    steady = ", ".join(
        f"{name} {value:.2f}" for name, value in zip(ranks.runs, ranks.steady, strict=True)
    )
    differs = "; ".join(f"{n}: {', '.join(values)}" for n, values in found.differs.items())
    mean = span_words(*(float(end) for end in ranks.mean))
    return [
        f"{len(ranks.class_names)} classes, {100 * ranks.level:g} % intervals from {ranks.draws} "
        f"draws of images within each class; mean of Spearman's ρ over all pairs {mean}.",
        f"Two orders without any relation stay below ρ = {ranks.by_chance:.2f} in 19 of 20 cases. "
        f"On images drawn anew a run agrees with itself by: {steady}.",
        *([f"The runs differ in {differs}."] if differs else []),
        *(f"{note[0].upper()}{note[1:]}." for note in ranks.notes),
    ]


def run_words(run: RunDetails, most: int = 3) -> list[str]:
    """What is known of one run, in sentences."""
    uneven = run.asymmetry.uneven
    words = [f"{len(uneven)} pairs of classes are confused unevenly, all pairs considered"]
    words += [pair.words for pair in uneven[:most]]
    words.append(
        "similarity of its classes is not known; first run: classwise similarity"
        if run.similarity is None
        else run.similarity.words
    )
    words += [run.over_epochs.words] if run.over_epochs else []
    return [*words, *run.remarks]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(map(markdown_text, heads))} |"]
    lines.append("| --- |" + " ---: |" * (len(heads) - 1))
    return [*lines, *(f"| {' | '.join(map(markdown_text, row))} |" for row in rows)]


def _csv(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    stream = io.StringIO()
    out = csv.writer(stream, lineterminator="\n")
    out.writerow(heads)
    out.writerows([csv_cell(cell) for cell in row] for row in rows)
    return stream.getvalue()


def _digits(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"


def _plain(value: Any) -> Any:
    """Numbers as JSON has them, to four digits; what is not there is None."""
    if isinstance(value, np.ndarray):
        return [_plain(one) for one in value.tolist()] if value.ndim else _plain(value.item())
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.4g}")
    return value
