"""The papers' summary table for the terminal; with every class, for Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from classwise.judging.audits import AuditedWeights
from classwise.report.brackets import latex_brackets, markdown_brackets
from classwise.report.classes import (
    csv_groups,
    csv_table,
    json_text,
    judged_again,
    latex_classes,
    markdown_classes,
)
from classwise.report.corruptions import apart, latex_corruptions, markdown_corruptions
from classwise.report.escaping import latex_text, markdown_text
from classwise.report.summary import (
    MEASURES,
    SummaryRow,
    beside,
    captions,
    cell,
    remarks,
    shown,
    summary_rows,
    worst_class_warning,
    worst_span,
)
from classwise.spelling import one_line

__all__ = [
    "SummaryRow",
    "csv_groups",
    "csv_table",
    "json_text",
    "latex_table",
    "markdown_table",
    "rich_table",
    "summary_rows",
]

LONG = 20  # of a single row's name: it stands above, a column would fold it letter by letter
NAMED = ("worst", "tail", "best")  # measures that name their classes
SHORT = {
    "average": "avg",
    "worst": "worst",
    "tail": "low 10%",
    "best": "best",
    "spread": "std",
}


def rich_table(audits: Sequence[AuditedWeights]) -> Table:
    """The table for the terminal; class names stand under their numbers."""
    rows = summary_rows(audits)
    words = Text(" ".join([*captions(audits), worst_class_warning(rows)]).strip())
    above = len(rows) == 1 and len(rows[0].label) > LONG
    table = Table(
        title=Text(rows[0].label) if above else None,
        title_justify="left",
        title_style="",
        box=SIMPLE_HEAD,
        padding=0,
        show_edge=False,
        caption=words,
        caption_justify="left",
    )
    if not above:
        table.add_column("recipe", overflow="fold")
    for measure, sides in shown(rows).items():
        for side in sides:
            head = f"{side}\n{SHORT[measure]}"
            width = None if measure in NAMED else 6  # names may fold, numbers never do
            table.add_column(head, justify="right", overflow="fold", width=width, min_width=6)
    for row in rows:
        cells = [] if above else [Text(row.label)]
        for measure, sides in shown(rows).items():
            for side in sides:
                number, names = cell(row, measure, side)
                text = Text(number)
                if names:
                    more = f" +{len(names) - 1}" if len(names) > 1 else ""
                    text.append(f"\n{one_line(names[0])}{more}", style="dim")
                    span = worst_span(row, measure, side)
                    text.append(f"\n{span}" if span else "", style="dim")
                cells.append(text)
        table.add_row(*cells)
    return table


def markdown_table(audits: Sequence[AuditedWeights]) -> str:
    """The table in Markdown, with its captions below, then every class and corruption."""
    audits, corrupted = apart(audits)
    rows = summary_rows(audits)
    groups = shown(rows)
    heads = [f"{MEASURES[measure]}, {side}" for measure, sides in groups.items() for side in sides]
    lines = ["| Recipe | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    for row in rows:
        cells = [markdown_text(row.label)]
        for measure, sides in groups.items():
            for side in sides:
                number, names = cell(row, measure, side)
                words = markdown_text(beside(row, measure, side))
                cells.append(number + (f" ({words})" if names else ""))
        lines.append("| " + " | ".join(cells) + " |")
    below = [*captions(audits), worst_class_warning(rows), *remarks(audits)]
    lines += ["", *(f"{markdown_text(line)}  " for line in below if line), ""]
    again = [f"## {_again(one)}\n\n{markdown_table([one])}" for one in judged_again(audits)]
    parts = [markdown_classes(audits), markdown_brackets(audits), markdown_corruptions(corrupted)]
    return "\n".join([*lines, *parts, *again]).rstrip("\n") + "\n"


def latex_table(audits: Sequence[AuditedWeights]) -> str:
    """The table for a paper, then every class and corruption (needs booktabs and longtable)."""
    audits, corrupted = apart(audits)
    rows = summary_rows(audits)
    groups = shown(rows)
    heads, rules, at = [""], [], 2
    for measure, sides in groups.items():
        heads.append(rf"\multicolumn{{{len(sides)}}}{{c}}{{{latex_text(MEASURES[measure])}}}")
        rules.append(rf"\cmidrule(lr){{{at}-{at + len(sides) - 1}}}")
        at += len(sides)
    under = ["Method"] + [side.capitalize() for _, sides in groups.items() for side in sides]
    lines = [
        *(f"% {one_line(line)}" for line in remarks(audits)),
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_text(' '.join(captions(audits)))}}}",
        rf"\begin{{tabular}}{{l{'r' * (at - 2)}}}",
        r"\toprule",
        " & ".join(heads) + r" \\",
        " ".join(rules),
        " & ".join(under) + r" \\",
        r"\midrule",
    ]
    for row in rows:
        cells = [latex_text(row.label)]
        for measure, sides in groups.items():
            for side in sides:
                number, names = cell(row, measure, side)
                words = rf" {{\scriptsize {latex_text(beside(row, measure, side))}}}"
                cells.append(latex_text(number) + (words if names else ""))
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    again = [f"% {_again(one)}\n{latex_table([one])}" for one in judged_again(audits)]
    whole = "\n".join(lines) + "\n\n" + latex_classes(audits) + latex_brackets(audits)
    whole += latex_corruptions(corrupted)
    return whole + "".join(again)


def _again(audit: AuditedWeights) -> str:
    words = str(audit.report.about["note"])
    return one_line(f"{audit.recipe}, {audit.weights}: {words}")
