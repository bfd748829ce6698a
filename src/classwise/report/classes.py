"""Every class of an audit: short in the terminal, in full in Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from classwise.judging.audits import AuditedWeights
from classwise.judging.corrupted import corruption_report, shown_apart
from classwise.judging.groups import CLASS
from classwise.judging.showing import (
    class_records,
    condition_facts,
    group_notes,
    listed,
    own_groupings,
    rate_words,
    sizes_words,
    worst_words,
)
from classwise.judging.smoothed import chance_words
from classwise.report.escaping import csv_cell, latex_text, markdown_text
from classwise.report.summary import MISSING, weights_label
from classwise.spelling import one_line

COLUMNS = (
    *("run", "recipe", "weights", "split", "class", "condition", "eps", "norm", "verdict"),
    *("n", "hits", "accuracy", "low", "high", "worst_low", "worst_high", "remarks"),
    *("sigma", "alpha", "robust_low", "robust_high"),  # of a smoothed model, else empty
)


def class_table(
    audit: AuditedWeights, title: str, *, everything: bool, command: str, grouping: str = CLASS
) -> Group:
    """The classes in the terminal, worst first; `command` is what would list all of many.

    Groups of another grouping are listed alike.
    """
    order = listed(audit.report, everything, grouping)
    words, all_of = _captions(audit, grouping), len(_names(audit, grouping))
    if len(order) < all_of:
        noun = "classes" if grouping == CLASS else "groups"
        words.append(f"The {len(order)} worst of {all_of} {noun}; all of them: {command}")
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        title=Text(_titled(title, grouping)),
        title_justify="left",
    )
    table.add_column(Text(grouping), overflow="fold")
    table.add_column("n", justify="right", overflow="fold")
    for name in audit.report:
        table.add_column(Text(name), justify="right", overflow="fold")
    for cells in _rows(audit, order, grouping):
        table.add_row(*map(Text, cells))
    return Group("", table, Text(" ".join(words)))


def judged_again(audits: Sequence[AuditedWeights]) -> list[AuditedWeights]:
    """Audits by more than one true label, of those that have them; without corruptions."""
    return [
        replace(audit, report=shown_apart(audit.report.relabelled)[0])
        for audit in audits
        if audit.report.relabelled is not None
    ]


def titles(audits: Sequence[AuditedWeights]) -> list[str]:
    """What stands above the classes of each audit."""
    runs = {audit.run for audit in audits}
    return [
        one_line(f"{weights_label(audit, audits)}, {audit.split}")
        + (f" [{audit.run}]" if len(runs) > 1 else "")
        for audit in audits
    ]


def _tables(audits: Sequence[AuditedWeights]) -> Iterator[tuple[AuditedWeights, str, str]]:
    """Each audit with a title and a grouping: the classes first, then groups of the user's own."""
    for audit, title in zip(audits, titles(audits), strict=True):
        for grouping in (CLASS, *own_groupings(audit.report)):
            yield audit, _titled(title, grouping), grouping


def _titled(title: str, grouping: str) -> str:
    return title if grouping == CLASS else f"{title}, by {grouping}"


def markdown_classes(audits: Sequence[AuditedWeights]) -> str:
    """Every class and group of every audit in Markdown, worst first."""
    lines = []
    for audit, title, grouping in _tables(audits):
        heads = [markdown_text(_head(grouping)), "n", *map(markdown_text, audit.report)]
        lines += [f"### {markdown_text(title)}", "", f"| {' | '.join(heads)} |"]
        lines.append("| --- |" + " ---: |" * (len(heads) - 1))
        for cells in _rows(audit, listed(audit.report, True, grouping), grouping):
            lines.append(f"| {' | '.join(map(markdown_text, cells))} |")
        lines += ["", *(f"{markdown_text(line)}  " for line in _captions(audit, grouping)), ""]
    return "\n".join(lines)


def latex_classes(audits: Sequence[AuditedWeights]) -> str:
    """Every class and group of every audit in LaTeX, worst first (booktabs and longtable)."""
    lines = []
    for audit, title, grouping in _tables(audits):
        heads = " & ".join([latex_text(_head(grouping)), "$n$", *map(latex_text, audit.report)])
        words = latex_text(f"{title}. {' '.join(_captions(audit, grouping))}")
        lines += [
            rf"\begin{{longtable}}{{lr{'r' * len(audit.report)}}}",
            rf"\caption{{{words}}}\\",
            rf"\toprule {heads} \\ \midrule \endhead",
            r"\bottomrule \endfoot",
        ]
        for cells in _rows(audit, listed(audit.report, True, grouping), grouping):
            lines.append(" & ".join(map(latex_text, cells)) + r" \\")
        lines.append(r"\end{longtable}")
    return "\n".join(lines) + "\n"


def csv_table(audits: Sequence[AuditedWeights]) -> str:
    """The long table: a row for every class and condition, rates from 0 to 1.

    `low` and `high` are the Wilson interval of the class; the worst class under a condition also
    has the interval of the truly worst one.
    """
    return _csv(COLUMNS, [row for audit in audits for row in _long(audit, CLASS)])


def csv_groups(audits: Sequence[AuditedWeights]) -> str:
    """The same for groupings of the user's own; empty where there are none."""
    at = COLUMNS.index("class")
    heads = (*COLUMNS[:at], "grouping", "group", *COLUMNS[at + 1 :], "error_ratio")
    rows = [
        {**row, "grouping": grouping}
        for audit in audits
        for grouping in own_groupings(audit.report)
        for row in _long(audit, grouping)
    ]
    return _csv(heads, rows) if rows else ""


def _csv(heads: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    stream = io.StringIO()
    out = csv.DictWriter(stream, heads, lineterminator="\n")
    out.writeheader()
    out.writerows({head: csv_cell(cell) for head, cell in row.items()} for row in rows)
    return stream.getvalue()


def json_text(audits: Sequence[AuditedWeights]) -> str:
    """All audits with every class, as JSON."""
    said = [
        {
            "run": audit.run,
            "recipe": audit.recipe,
            "weights": audit.weights,
            "split": audit.split,
            "remarks": audit.report.remarks,
            **audit.report.to_dict(),
            **({} if many is None else {"corruptions": many.to_dict()}),
        }
        for audit in audits
        for many in [corruption_report(audit.report)]
    ]
    return json.dumps({"audits": said}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _long(audit: AuditedWeights, grouping: str) -> Iterator[dict[str, Any]]:
    facts = {
        "run": audit.run,
        "recipe": audit.recipe,
        "weights": audit.weights,
        "split": audit.split,
        "remarks": "; ".join(audit.report.remarks),
    }
    bounds = _bounds(audit) if grouping == CLASS else {}
    for one in audit.report.values():
        done = condition_facts(one)
        done["eps"] = done.pop("eps_text")
        done |= {"sigma": one.drawn.sigma or None, "alpha": one.drawn.alpha or None}
        found = one.by(grouping)
        for k, record in enumerate(class_records(one, grouping)):
            row = {**facts, **done, **record}
            if one.condition in bounds and record["accuracy"] is not None:
                row["robust_low"], row["robust_high"] = bounds[one.condition][k]
            if record["accuracy"] is not None and record["accuracy"] == found.worst:
                row["worst_low"], row["worst_high"] = found.worst_interval
            yield {key: _digits(value) for key, value in row.items()}


def _bounds(audit: AuditedWeights) -> dict[str, list[tuple[float, float]]]:
    """Where the robust accuracy of each class of a smoothed model lies, by its attack."""
    found: dict[str, list[tuple[float, float]]] = {}
    for one in audit.report.brackets:
        low, high = (end.tolist() for end in one.ends)
        found.setdefault(one.attacked.condition, list(zip(low, high, strict=True)))
    return found


def _digits(value: Any) -> Any:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else value


def _names(audit: AuditedWeights, grouping: str) -> tuple[str, ...]:
    return next(iter(audit.report.values())).by(grouping).tally.names


def _head(grouping: str) -> str:
    return "Class" if grouping == CLASS else grouping


def _rows(audit: AuditedWeights, order: Sequence[int], grouping: str) -> Iterator[list[str]]:
    """Name, samples, and accuracy with interval under every condition."""
    records = [class_records(one, grouping) for one in audit.report.values()]
    names = _names(audit, grouping)
    for k in order:
        here = [one[k] for one in records]
        name = one_line(names[k])
        yield [name or MISSING, sizes_words(here), *map(rate_words, here)]


def _captions(audit: AuditedWeights, grouping: str) -> list[str]:
    noun = "class" if grouping == CLASS else "group"
    spans = [f"{name} {worst_words(one, grouping)}" for name, one in audit.report.items()]
    return [
        f"Accuracy in per cent with its 95 % Wilson interval, worst {noun} first.",
        f"The truly worst {noun} lies in (95 %): {'; '.join(spans)}.",
        *group_notes(audit.report, grouping),
        *chance_words(audit.report),
    ]
