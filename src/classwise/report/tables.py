"""The papers' summary table for the terminal, Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from classwise.auditing.predictions import AuditedWeights
from classwise.report.summary import (
    MEASURES,
    SIDES,
    SummaryRow,
    captions,
    cell,
    classes_without_samples,
    few_names,
    measured,
    remarks,
    shown,
    summary_rows,
    worst_class_warning,
)

__all__ = [
    "SummaryRow",
    "csv_table",
    "latex_table",
    "markdown_table",
    "rich_table",
    "summary_rows",
]

NAMED = ("worst", "tail", "best")  # measures that name their classes
SHORT = {
    "average": "avg",
    "worst": "worst",
    "tail": "low 10%",
    "best": "best",
    "spread": "std",
}
LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "–": "--",
    **{mark: "\\" + mark for mark in "&%$#_{}"},
}


def rich_table(audits: Sequence[AuditedWeights]) -> Table:
    """The table for the terminal; class names stand under their numbers."""
    rows = summary_rows(audits)
    words = Text(" ".join([*captions(audits), worst_class_warning(rows)]).strip())
    table = Table(
        box=SIMPLE_HEAD,
        padding=0,
        show_edge=False,
        caption=words,
        caption_justify="left",
    )
    table.add_column("recipe", overflow="fold")
    for measure, sides in shown(rows).items():
        for side in sides:
            head = f"{side}\n{SHORT[measure]}"
            width = None if measure in NAMED else 6  # names may fold, numbers never do
            table.add_column(head, justify="right", overflow="fold", width=width, min_width=6)
    for row in rows:
        cells = [Text(row.label)]
        for measure, sides in shown(rows).items():
            for side in sides:
                number, names = cell(row, measure, side)
                text = Text(number)
                if names:
                    more = f" +{len(names) - 1}" if len(names) > 1 else ""
                    text.append(f"\n{_one_line(names[0])}{more}", style="dim")
                cells.append(text)
        table.add_row(*cells)
    return table


def markdown_table(audits: Sequence[AuditedWeights]) -> str:
    """The table in Markdown, with its captions below."""
    rows = summary_rows(audits)
    groups = shown(rows)
    heads = [f"{MEASURES[measure]}, {side}" for measure, sides in groups.items() for side in sides]
    lines = ["| Recipe | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    for row in rows:
        cells = [_markdown(row.label)]
        for measure, sides in groups.items():
            for side in sides:
                number, names = cell(row, measure, side)
                cells.append(number + (f" ({_markdown(few_names(names))})" if names else ""))
        lines.append("| " + " | ".join(cells) + " |")
    below = [*captions(audits), worst_class_warning(rows), *remarks(audits)]
    return "\n".join([*lines, "", *(f"{_markdown(line)}  " for line in below if line)]) + "\n"


def csv_table(audits: Sequence[AuditedWeights]) -> str:
    """The table as CSV, in per cent with all digits; lists of classes are joined by "; "."""
    facts = ["label", "run", "recipe", "weights", "split", "attack", "eps", "norm", "verdict"]
    heads = list(facts)
    for measure in MEASURES:
        for side in SIDES:
            heads.append(f"{side}_{measure}")
            if measure in NAMED:
                heads.append(f"{side}_{measure}_class")
    heads += [*(f"{side}_no_samples" for side in SIDES), "remarks"]
    said = {(a.run, a.weights, a.split): "; ".join(a.report.remarks) for a in audits}
    stream = io.StringIO()
    out = csv.DictWriter(stream, heads, extrasaction="ignore", lineterminator="\n")
    out.writeheader()
    for row in summary_rows(audits):
        values: dict[str, str] = {fact: getattr(row, fact) for fact in facts}
        values["remarks"] = said[row.run, row.weights, row.split]
        for side in SIDES:
            report = row.side(side)
            if report is None:
                continue
            for measure in MEASURES:
                value, names = measured(report, measure)
                values[f"{side}_{measure}"] = "" if value is None else f"{100 * value:.6g}"
                values[f"{side}_{measure}_class"] = "; ".join(names)
            values[f"{side}_no_samples"] = "; ".join(classes_without_samples(report))
        out.writerow(values)
    return stream.getvalue()


def latex_table(audits: Sequence[AuditedWeights]) -> str:
    """The table for a paper (needs the booktabs package)."""
    rows = summary_rows(audits)
    groups = shown(rows)
    heads, rules, at = [""], [], 2
    for measure, sides in groups.items():
        heads.append(rf"\multicolumn{{{len(sides)}}}{{c}}{{{_latex(MEASURES[measure])}}}")
        rules.append(rf"\cmidrule(lr){{{at}-{at + len(sides) - 1}}}")
        at += len(sides)
    under = ["Method"] + [side.capitalize() for _, sides in groups.items() for side in sides]
    lines = [
        *(f"% {_one_line(line)}" for line in remarks(audits)),
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(' '.join(captions(audits)))}}}",
        rf"\begin{{tabular}}{{l{'r' * (at - 2)}}}",
        r"\toprule",
        " & ".join(heads) + r" \\",
        " ".join(rules),
        " & ".join(under) + r" \\",
        r"\midrule",
    ]
    for row in rows:
        cells = [_latex(row.label)]
        for measure, sides in groups.items():
            for side in sides:
                number, names = cell(row, measure, side)
                beside = rf" {{\scriptsize {_latex(few_names(names))}}}" if names else ""
                cells.append(_latex(number) + beside)
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _markdown(text: str) -> str:
    r"""Keep text from being read as Markdown or HTML.

    >>> print(_markdown("a|b <i> *c*"))
    a\|b &lt;i&gt; \*c\*
    """
    text = _one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_|\[\]~])", r"\\\1", text)


def _latex(text: str) -> str:
    r"""Keep text from being read as LaTeX.

    >>> print(_latex("50 % of a_b"))
    50 \% of a\_b
    """
    return "".join(LATEX_SPECIAL.get(mark, mark) for mark in _one_line(text))
