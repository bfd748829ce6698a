"""Certified and attacked share of each class of a smoothed classifier, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from classwise.judging.audits import AuditedWeights
from classwise.judging.showing import ALL_UP_TO, FEW
from classwise.judging.smoothed import Bracket
from classwise.report.classes import titles
from classwise.report.escaping import latex_text, markdown_text
from classwise.spelling import one_line

HEADS = ("class", "n", "certified", "attacked", "abstained", "robust accuracy")


def rows_of(bracket: Bracket) -> list[list[str]]:
    """The cells of each class in words, rates in per cent, the least certified first."""
    found = bracket.records()
    order = sorted(range(len(found)), key=lambda k: _place(found[k]["certified"]))
    return [_cells(found[k]) for k in order]


def bracket_tables(
    audit: AuditedWeights, title: str, *, everything: bool, command: str
) -> Iterator[Group]:
    """A table for the terminal for every pair of bounds; of many classes, the least certified."""
    for bracket in audit.report.brackets:
        rows, words = rows_of(bracket), [bracket.caption]
        if not everything and len(rows) > ALL_UP_TO:
            words.append(f"The {FEW} least certified of {len(rows)} classes; all: {command}")
            rows = rows[:FEW]
        table = Table(
            box=SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            show_edge=False,
            title=Text(f"{title}, {bracket.title}"),
            title_justify="left",
        )
        for number, head in enumerate(HEADS):
            table.add_column(head, justify="right" if number else "left", overflow="fold")
        for cells in rows:
            table.add_row(*map(Text, cells))
        yield Group("", table, Text(" ".join(words)))


def page_brackets(audits: Sequence[AuditedWeights]) -> list[dict[str, object]]:
    """What the page shows of every pair of bounds; it escapes the words itself."""
    return [
        {"title": f"{title}, {one.title}", "caption": one.caption, "rows": rows_of(one)}
        for audit, title in zip(audits, titles(audits), strict=True)
        for one in audit.report.brackets
    ]


def markdown_brackets(audits: Sequence[AuditedWeights]) -> str:
    """Every pair of bounds in Markdown; empty where there is none."""
    lines = []
    for audit, title in zip(audits, titles(audits), strict=True):
        for one in audit.report.brackets:
            lines += [
                f"### {markdown_text(f'{title}, {one.title}')}",
                "",
                f"| {' | '.join(HEADS)} |",
            ]
            lines.append("| --- |" + " ---: |" * (len(HEADS) - 1))
            lines += [f"| {' | '.join(map(markdown_text, cells))} |" for cells in rows_of(one)]
            lines += ["", markdown_text(one.caption), ""]
    return "\n".join(lines)


def latex_brackets(audits: Sequence[AuditedWeights]) -> str:
    """Every pair of bounds in LaTeX (booktabs and longtable); empty where there is none."""
    lines = []
    for audit, title in zip(audits, titles(audits), strict=True):
        for one in audit.report.brackets:
            lines += [
                rf"\begin{{longtable}}{{l{'r' * (len(HEADS) - 1)}}}",
                rf"\caption{{{latex_text(f'{title}, {one.title}. {one.caption}')}}}\\",
                rf"\toprule {' & '.join(HEADS)} \\ \midrule \endhead",
                r"\bottomrule \endfoot",
                *(" & ".join(map(latex_text, cells)) + r" \\" for cells in rows_of(one)),
                r"\end{longtable}",
            ]
    return "\n".join([*lines, ""])


def _place(rate: float | None) -> float:
    return 2.0 if rate is None else rate  # classes without samples come last


def _cells(row: dict[str, object]) -> list[str]:
    name, sizes = one_line(str(row["class"])), (row["n"], row["attacked_n"])
    if not any(sizes):
        return [name, "no samples", "", "", "", ""]
    certified, attacked, low, high = (
        "no samples" if row[key] is None else f"{100 * float(str(row[key])):.1f}"
        for key in ("certified", "attacked", "low", "high")
    )
    silent = "" if row["abstained"] is None else str(row["abstained"])
    many = ", ".join(map(str, dict.fromkeys(sizes)))  # one number, or both where they differ
    return [name, many, certified, attacked, silent, f"{low}–{high}"]
