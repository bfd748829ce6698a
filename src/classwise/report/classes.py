"""Every class of an audit: short in the terminal, in full in Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from classwise.auditing.predictions import AuditedWeights
from classwise.auditing.showing import (
    class_records,
    condition_facts,
    listed,
    rate_words,
    sizes_words,
    worst_words,
)
from classwise.report.escaping import latex_text, markdown_text
from classwise.report.summary import MISSING, weights_label
from classwise.spelling import one_line, spell_eps

COLUMNS = (
    *("run", "recipe", "weights", "split", "class", "condition", "eps", "norm", "verdict"),
    *("n", "hits", "accuracy", "low", "high", "worst_low", "worst_high", "remarks"),
)


def class_table(audit: AuditedWeights, title: str, *, everything: bool, command: str) -> Group:
    """The classes in the terminal, worst first; `command` is what would list all of many."""
    order = listed(audit.report, everything)
    words = [*_captions(audit)]
    if len(order) < len(audit.report.class_names):
        words.append(
            f"The {len(order)} worst of {len(audit.report.class_names)} classes; all of them: "
            f"{command}"
        )
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        title=Text(title),
        title_justify="left",
    )
    table.add_column("class", overflow="fold")
    table.add_column("n", justify="right", overflow="fold")
    for name in audit.report:
        table.add_column(Text(name), justify="right", overflow="fold")
    for cells in _rows(audit, order):
        table.add_row(*map(Text, cells))
    return Group("", table, Text(" ".join(words)))


def titles(audits: Sequence[AuditedWeights]) -> list[str]:
    """What stands above the classes of each audit."""
    runs = {audit.run for audit in audits}
    return [
        one_line(f"{weights_label(audit, audits)}, {audit.split}")
        + (f" [{audit.run}]" if len(runs) > 1 else "")
        for audit in audits
    ]


def markdown_classes(audits: Sequence[AuditedWeights]) -> str:
    """Every class of every audit in Markdown, worst first."""
    lines = []
    for audit, title in zip(audits, titles(audits), strict=True):
        heads = ["Class", "n", *map(markdown_text, audit.report)]
        lines += [f"### {markdown_text(title)}", "", f"| {' | '.join(heads)} |"]
        lines.append("| --- |" + " ---: |" * (len(heads) - 1))
        for cells in _rows(audit, listed(audit.report, everything=True)):
            lines.append(f"| {' | '.join(map(markdown_text, cells))} |")
        lines += ["", *(f"{markdown_text(line)}  " for line in _captions(audit)), ""]
    return "\n".join(lines)


def latex_classes(audits: Sequence[AuditedWeights]) -> str:
    """Every class of every audit in LaTeX, worst first (needs booktabs and longtable)."""
    lines = []
    for audit, title in zip(audits, titles(audits), strict=True):
        heads = " & ".join(["Class", "$n$", *map(latex_text, audit.report)])
        words = latex_text(f"{title}. {' '.join(_captions(audit))}")
        lines += [
            rf"\begin{{longtable}}{{lr{'r' * len(audit.report)}}}",
            rf"\caption{{{words}}}\\",
            rf"\toprule {heads} \\ \midrule \endhead",
            r"\bottomrule \endfoot",
        ]
        for cells in _rows(audit, listed(audit.report, everything=True)):
            lines.append(" & ".join(map(latex_text, cells)) + r" \\")
        lines.append(r"\end{longtable}")
    return "\n".join(lines) + "\n"


def csv_table(audits: Sequence[AuditedWeights]) -> str:
    """The long table: a row for every class and condition, rates from 0 to 1.

    `low` and `high` are the Wilson interval of the class; the worst class under a condition also
    has the interval of the truly worst one.
    """
    stream = io.StringIO()
    out = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    out.writeheader()
    for audit in audits:
        out.writerows(_long(audit))
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
        }
        for audit in audits
    ]
    return json.dumps({"audits": said}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _long(audit: AuditedWeights) -> Iterator[dict[str, Any]]:
    facts = {
        "run": audit.run,
        "recipe": audit.recipe,
        "weights": audit.weights,
        "split": audit.split,
        "remarks": "; ".join(audit.report.remarks),
    }
    for one in audit.report.values():
        done = condition_facts(one)
        done["eps"] = "" if one.eps is None else spell_eps(one.eps)
        for record in class_records(one):
            row = {**facts, **done, **record}
            if not one.unfinished and record["accuracy"] == one.worst:
                row["worst_low"], row["worst_high"] = one.worst_interval
            yield {key: _digits(value) for key, value in row.items()}


def _digits(value: Any) -> Any:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else value


def _rows(audit: AuditedWeights, order: Sequence[int]) -> Iterator[list[str]]:
    """Name, samples, and accuracy with interval under every condition."""
    records = [class_records(one) for one in audit.report.values()]
    for k in order:
        here = [one[k] for one in records]
        name = one_line(audit.report.class_names[k])
        yield [name or MISSING, sizes_words(here), *map(rate_words, here)]


def _captions(audit: AuditedWeights) -> list[str]:
    spans = [f"{name} {worst_words(one)}" for name, one in audit.report.items()]
    return [
        "Accuracy in per cent with its 95 % Wilson interval, worst class first.",
        f"The truly worst class lies in (95 %): {'; '.join(spans)}.",
    ]
