"""Corruptions in every format: each with its average and worst class, severities pooled."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from classwise.corruptions.severities import SEVERITIES
from classwise.judging.audits import AuditedWeights
from classwise.judging.corrupted import CorruptedClasses, CorruptionReport, shown_apart
from classwise.report.classes import titles
from classwise.report.escaping import csv_cell, latex_text, markdown_text
from classwise.spelling import few_names, one_line

HEADS = ("corruption", "average", "worst class", "best class", "std", "gap", "error")
GROUPS = ("n", "average")  # heads between a group's name and the corruptions
GROUPS_SAID = (
    "Average over all corruptions and severities, the worst group first; its 95 % Wilson interval "
    "is that of one verdict per image."
)
COLUMNS = (
    *("run", "recipe", "weights", "split", "corruption", "severities", "class"),
    *("n", "hits", "accuracy", "low", "high", "worst", "error"),
)


@dataclass(frozen=True)
class GroupTable:
    """The groups of one grouping under all corruptions, as words; the worst on average first."""

    grouping: str
    rows: tuple[tuple[str, ...], ...]  # name, images, average, then each corruption
    worst: tuple[str, ...]  # of each group, the corruption that it stands least


@dataclass(frozen=True)
class CorruptionTable:
    """The corruptions of one audit, as words."""

    title: str
    rows: tuple[tuple[str, ...], ...]  # under HEADS
    classes: tuple[tuple[str, ...], ...]  # name and accuracy under each corruption
    names: tuple[str, ...]  # of the corruptions
    groups: tuple[GroupTable, ...]  # for each grouping of the user's own
    words: tuple[str, ...]


def apart(
    audits: Sequence[AuditedWeights],
) -> tuple[list[AuditedWeights], list[CorruptionTable]]:
    """Audits for tables of conditions, and tables of the corruptions that are not in them."""
    rest, tables = [], []
    for audit, title in zip(audits, titles(audits), strict=True):
        plain, many = shown_apart(audit.report)
        rest.append(replace(audit, report=plain))
        if many is not None:
            tables.append(_table(many, f"{title}, corruptions"))
    return rest, tables


def _table(many: CorruptionReport, title: str) -> CorruptionTable:
    several = many.corruptions
    rates = [one.by_group for one in several.values()]
    names = next(iter(several.values())).tally.names
    return CorruptionTable(
        title,
        tuple(_row(name, one) for name, one in several.items()),
        tuple((one_line(k), *(_percent(each[k]) for each in rates)) for k in names),
        tuple(several),
        tuple(_groups(many, grouping) for grouping in many.groupings),
        tuple(_words(many)),
    )


def _groups(many: CorruptionReport, grouping: str) -> GroupTable:
    whole = many.together.by(grouping)
    each = [one.by(grouping).by_group for one in many.corruptions.values()]
    spans, found = whole.intervals, whole.by_group
    order = sorted(found, key=lambda name: (found[name] is None, found[name]))
    rows, worst = [], []
    for name in order:
        rates = [rate[name] for rate in each]
        span = spans[name]
        beside = "" if span is None else f" ({100 * span[0]:.1f}–{100 * span[1]:.1f})"
        average = f"{_percent(found[name])}{beside}"
        rows.append((one_line(name), str(whole.images_of[name]), average, *map(_percent, rates)))
        known = [(rate, said) for rate, said in zip(rates, many.corruptions, strict=True) if span]
        least = min((one for one in known if one[0] is not None), default=None)
        worst.append("" if least is None else f"{_percent(least[0])} ({least[1]})")
    return GroupTable(grouping, tuple(rows), tuple(worst))


def _row(name: str, one: CorruptedClasses) -> tuple[str, ...]:
    low, high = one.worst_interval
    whole = one.severities == SEVERITIES
    said = name if whole else f"{name} (severity {', '.join(map(str, one.severities))})"
    return (
        said,
        _percent(one.overall),
        f"{_percent(one.worst)} ({_names_at(one, one.worst)}; {100 * low:.1f}–{100 * high:.1f})",
        f"{_percent(one.best)} ({_names_at(one, one.best)})",
        _percent(one.spread),
        _percent(one.gap),
        _percent(one.error),
    )


def _names_at(one: CorruptedClasses, rate: float) -> str:
    return few_names([one_line(name) for name in one.names_at(rate)])


def _words(many: CorruptionReport) -> list[str]:
    count = len(many.corruptions)
    each = "its mean over severities" if count == 1 else f"over {count} corruptions"
    found = [
        "Per cent, severities pooled before the worst class is taken; beside it the 95 % interval "
        "of the truly worst class, for as many verdicts as there are images.",
        f"Mean error {_percent(many.error)} ({each}, divided by nothing).",
    ]
    fewest, most = many.together.images
    if many.groupings:
        found.append(f"By groups: {GROUPS_SAID[0].lower()}{GROUPS_SAID[1:]}")
    if not many.together.same_images:
        counts = f"{fewest} to {most}" if fewest < most else f"{most} each"
        found.append(f"Not all saw the same images ({counts}); verdicts are pooled as they are.")
    if many.mce is None:
        return [*found, f"{many.missing[0].upper()}{many.missing[1:]}."]
    rise = many.relative_mce
    relative = "" if rise is None else f", relative mCE {100 * rise:.1f}"
    if many.clean is not None and rise is None:
        found.append("No relative mCE: the clean images are other ones than the corrupted.")
    return [*found, f"mCE {100 * many.mce:.1f}{relative} (AlexNet's is 100)."]


def _percent(rate: float | None) -> str:
    return "no samples" if rate is None else f"{100 * rate:.1f}"


def rich_corruptions(found: CorruptionTable) -> Group:
    """The tables for the terminal: corruptions, then groups, if there are any."""
    parts: list[Text | Table | str] = ["", _rich(found.title, HEADS, found.rows)]
    parts.append(Text(" ".join(found.words)))
    for one in found.groups:
        heads = (one.grouping, "n", "average", "worst corruption")
        rows = [(*row[:3], worst) for row, worst in zip(one.rows, one.worst, strict=True)]
        parts += ["", _rich(f"{found.title}, by {one.grouping}", heads, rows), Text(GROUPS_SAID)]
    return Group(*parts)


def _rich(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        title=Text(title),
        title_justify="left",
    )
    for number, head in enumerate(heads):
        table.add_column(Text(head), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def markdown_corruptions(tables: Sequence[CorruptionTable]) -> str:
    """The tables in Markdown: corruptions, then every group and every class under each."""
    lines: list[str] = []
    for found in tables:
        for title, heads, rows in _each(found):
            lines += [f"### {markdown_text(title)}", "", _line(heads)]
            lines.append("| --- |" + " ---: |" * (len(heads) - 1))
            lines += [*map(_line, rows), ""]
        lines += [*(f"{markdown_text(words)}  " for words in found.words), ""]
    return "\n".join(lines)


def latex_corruptions(tables: Sequence[CorruptionTable]) -> str:
    """The tables in LaTeX (booktabs and longtable)."""
    lines: list[str] = []
    for found in tables:
        for title, heads, rows in _each(found):
            lines += [
                rf"\begin{{longtable}}{{l{'r' * (len(heads) - 1)}}}",
                rf"\caption{{{latex_text(f'{title}. ' + ' '.join(found.words))}}}\\",
                rf"\toprule {' & '.join(map(latex_text, heads))} \\ \midrule \endhead",
                r"\bottomrule \endfoot",
                *(" & ".join(map(latex_text, row)) + r" \\" for row in rows),
                r"\end{longtable}",
            ]
    return "\n".join(lines) + "\n" if lines else ""


def csv_corruptions(audits: Sequence[AuditedWeights]) -> str:
    """A row for every class and corruption, severities pooled; empty where there are none."""
    stream = io.StringIO()
    out = csv.writer(stream, lineterminator="\n")
    out.writerow(COLUMNS)
    count = 0
    for audit in audits:
        _, many = shown_apart(audit.report)
        for name, one in {} if many is None else many.corruptions.items():
            spans = one.intervals
            for k, group in enumerate(one.tally.names):
                count += 1
                rate, span = one.by_group[group], spans[group] or ("", "")
                cells = [
                    *(audit.run, audit.recipe, audit.weights, audit.split, name),
                    *(" ".join(map(str, one.severities)), group),
                    *(int(one.tally.sizes[k]), int(one.tally.hits[k])),
                    *("" if rate is None else rate, *span, rate == one.worst, one.error),
                ]
                out.writerow([csv_cell(_digits(cell)) for cell in cells])
    return stream.getvalue() if count else ""


def _each(
    found: CorruptionTable,
) -> list[tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]]:
    """Title, heads and rows of all tables."""
    return [
        (found.title, HEADS, found.rows),
        *(
            (f"{found.title}, by {one.grouping}", (one.grouping, *GROUPS, *found.names), one.rows)
            for one in found.groups
        ),
        (f"{found.title}, every class", ("class", *found.names), found.classes),
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(markdown_text, cells))} |"


def _digits(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value
