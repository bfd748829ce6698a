"""What corruptions do to classes: pooled over severities or one by one, beside attacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from classwise.judging.corrupted import CorruptedClasses
from classwise.spelling import few_names
from classwise.statistics.ranks import spearman
from classwise.studies.artefact import PERCENT, Artefact, ArtefactOptions, Cell, Figure
from classwise.studies.cells import (
    Setting,
    cell_over,
    condition_words,
    line_of,
    notes_of,
    settings_of,
)
from classwise.studies.found import Found, FoundRun, Hole
from classwise.studies.papers.cells import PaperColumn, paper_cell
from classwise.studies.readings import (
    ConditionName,
    Read,
    corruptions_of,
    read_measure,
    report_of,
)

Said = Literal["worst", "average", "error", "gap", "spread", "best"]
MOST_BARS = 60  # of a picture; with more, it is a map
ORDER = "ρ"
NO_CORRUPTION = "no corruption audited yet"  # the one line of a table without any run


class CorruptionsOptions(ArtefactOptions):
    """Measures under each corruption, severities pooled, or of each severity.

    `beside` are other conditions in the same rows; `order_of` one whose order of classes each
    corruption's is compared with. `leave_out` are settings of the study by their label.
    """

    kind: Literal["corruptions"]
    measures: tuple[Said, ...] = Field(("worst", "average"), min_length=1)
    by_severity: bool = False
    beside: tuple[ConditionName, ...] = ()
    order_of: ConditionName | None = None
    weights: str = "last"
    paper_table: str = ""


class Line(NamedTuple):
    """A row of the table: a corruption, all severities or one, or another condition."""

    label: str
    condition: str  # as the papers name it
    of: Callable[[FoundRun], Callable[[str], Read]]  # measure by measure
    rates: Callable[[FoundRun], list[float]]  # of the classes
    severity: int = 0  # 0: all of them, or no corruption


def corruptions(found: Found, options: CorruptionsOptions) -> Artefact:
    """A row for every corruption, a column for every row of the study and measure."""
    found = found.only(options.where)
    lines = _lines(found, options)
    settings = settings_of(found)
    rows = []
    for line in lines:
        cells = [_cell(found, one, line, m, options) for m in options.measures for one in settings]
        rows.append((Cell(words=line.label), *cells, *_orders(line, settings, options)))
    heads = [f"{one.label}, {m}" for m in options.measures for one in settings]
    order = f"order of classes as under {options.order_of}"
    heads += [f"{one.label}, {order}" for one in settings] if options.order_of else []
    return Artefact(
        name=options.file_name,
        title=options.title,
        head=("corruption", *heads),
        rows=tuple(rows),
        notes=(
            *notes_of(found, options.beside, (options.weights,)),
            *_notes(found, lines, settings, rows, options),
            *((options.note,) if options.note else ()),
        ),
        figure=_figure(lines, settings, rows, options),
    )


def _lines(found: Found, options: CorruptionsOptions) -> list[Line]:
    """The other conditions first, then every corruption that some run was audited under."""
    lines = [
        Line(
            condition_words(found, condition),
            condition,
            lambda run, c=condition: _of_condition(run, c, options.weights),  # type: ignore[misc]
            lambda run, c=condition: report_of(run, c, options.weights).rates.tolist(),  # type: ignore[misc]
        )
        for condition in options.beside
    ]
    severities: dict[str, set[int]] = {}
    for run in found.runs:
        try:
            known = corruptions_of(run, options.weights).corruptions
        except Hole:
            continue
        for name, one in known.items():
            severities.setdefault(name, set()).update(one.severities)
    for name, several in severities.items():
        chosen = sorted(several) if options.by_severity else [0]
        lines += [_corruption_line(name, severity, options.weights) for severity in chosen]
    return lines if severities else [*lines, _corruption_line(NO_CORRUPTION, 0, options.weights)]


def _of_condition(run: FoundRun, condition: str, weights: str) -> Callable[[str], Read]:
    report = report_of(run, condition, weights)
    return lambda measure: read_measure(report, measure)


def _corruption_line(name: str, severity: int, weights: str) -> Line:
    def one(run: FoundRun) -> CorruptedClasses:
        known = corruptions_of(run, weights).corruptions
        if name not in known:
            raise Hole(f"{name} not audited")
        if severity and severity not in known[name].severities:
            raise Hole(f"{name} not audited at severity {severity}")
        return known[name]

    def of(run: FoundRun) -> Callable[[str], Read]:
        found = one(run)
        if severity:
            report = found.seen[found.severities.index(severity)]
            return lambda measure: read_measure(report, measure)
        return lambda measure: _pooled(found, measure)

    def rates(run: FoundRun) -> list[float]:
        found = one(run)
        seen = found.seen[found.severities.index(severity)] if severity else found
        return list(seen.rates.tolist())

    label = f"{name} {severity}" if severity else name
    return Line(label, name, of, rates, severity)


def _pooled(found: CorruptedClasses, measure: str) -> Read:
    """A measure of the classes after all severities are put together."""
    if measure == "worst":
        return Read(found.worst, _at(found, found.worst), found.worst_interval)
    if measure == "best":
        return Read(found.best, _at(found, found.best))
    plain = {"average": found.overall, "error": found.error, "gap": found.gap}
    return Read(found.spread if measure == "spread" else plain[measure])


def _at(found: CorruptedClasses, rate: float) -> tuple[str, ...]:
    """All classes at this very rate."""
    return tuple(name for name, one in found.by_group.items() if one == rate)


def _cell(
    found: Found, setting: Setting, line: Line, measure: str, options: CorruptionsOptions
) -> Cell:
    ours = cell_over(setting.runs, lambda run: line.of(run)(measure))
    labels = setting.runs[0].labels
    if not options.paper_table or "row" not in labels or line.severity:
        return ours
    place = PaperColumn(measure, line.condition, options.weights, labels.get("data", ""))
    theirs = paper_cell(found.study.paper, options.paper_table, labels["row"], place)
    return ours if theirs is None else replace(ours, paper=theirs.value, doubtful=theirs.doubtful)


def _orders(line: Line, settings: Sequence[Setting], options: CorruptionsOptions) -> list[Cell]:
    """Rank correlation of the classes' accuracies with those under `order_of`."""
    attack = options.order_of
    if attack is None:
        return []

    def read(run: FoundRun) -> Read:
        both = np.array([line.rates(run), report_of(run, attack, options.weights).rates.tolist()])
        known = both[:, ~np.isnan(both).any(0)]
        found = float(spearman(known)[0, 1]) if known.shape[1] > 2 else float("nan")
        if np.isnan(found):
            raise Hole("all classes are equal there: no order")
        return Read(found)

    return [cell_over(setting.runs, read, ORDER) for setting in settings]


def _notes(
    found: Found,
    lines: Sequence[Line],
    settings: Sequence[Setting],
    rows: Sequence[Sequence[Cell]],
    options: CorruptionsOptions,
) -> list[str]:
    said = []
    if not options.by_severity:
        said.append("Severities are pooled before the minimum over classes is taken.")
    severities = sorted({s for run in found.runs for s in _severities(run, options.weights)})
    if severities:
        said.append(f"Severities audited: {', '.join(map(str, severities))}.")
    if options.order_of:
        said.append(f"ρ: Spearman's rank correlation of classes with {options.order_of}.")
    if "gap" not in options.measures or len(options.beside) < 2 or options.beside[0] != "clean":
        return said
    first = 1 + options.measures.index("gap") * len(settings)
    for number, setting in enumerate(settings):
        gaps = {line.label: rows[place][first + number].mean for place, line in enumerate(lines)}
        said += _widened(setting.label, gaps, [line.label for line in lines], options)
    return said


def _widened(
    label: str, gaps: dict[str, float | None], names: list[str], options: CorruptionsOptions
) -> list[str]:
    """Which corruptions widen the gap between classes, and which as far as the attack does."""
    clean, attacked = gaps[names[0]], gaps[names[1]]
    shifted = {n: g for n in names[len(options.beside) :] if (g := gaps[n]) is not None}
    if clean is None or attacked is None or not shifted:
        return []
    wider = [name for name, gap in shifted.items() if gap > clean]
    as_far = [name for name in wider if shifted[name] >= attacked]
    return [
        f"{label}: {len(wider)} of {len(shifted)} corruptions widen the gap of clean images"
        f"{f' ({few_names(wider, 19)})' if wider else ''}, {len(as_far)} at least as far as "
        f"{options.beside[1]}{f' ({few_names(as_far, 19)})' if as_far else ''}."
    ]


def _severities(run: FoundRun, weights: str) -> set[int]:
    try:
        known = corruptions_of(run, weights).corruptions
    except Hole:
        return set()
    return {severity for one in known.values() for severity in one.severities}


def _figure(
    lines: Sequence[Line],
    settings: Sequence[Setting],
    rows: Sequence[Sequence[Cell]],
    options: CorruptionsOptions,
) -> Figure:
    """The first measure: a map of corruption and severity for each setting, or bars."""
    measure = options.measures[0]
    columns = [[row[1 + number] for row in rows] for number in range(len(settings))]
    if options.by_severity:
        panels = tuple(
            _map(setting.label, lines, cells, measure)
            for setting, cells in zip(settings, columns, strict=True)
        )
        return panels[0] if len(panels) == 1 else Figure("heat", "", "", panels=panels)
    names = tuple(line.label for line in lines)
    series = tuple(
        line_of(one.label, names, cells) for one, cells in zip(settings, columns, strict=True)
    )
    kind: Literal["bars", "heat"] = "bars" if len(names) * len(settings) <= MOST_BARS else "heat"
    return Figure(kind, "corruption", measure if kind == "bars" else "", series, unit=PERCENT,
                  title="" if kind == "bars" else f"{measure} (%)")  # fmt: skip


def _map(title: str, lines: Sequence[Line], cells: Sequence[Cell], measure: str) -> Figure:
    names = dict.fromkeys(line.condition for line in lines if line.severity)
    pairs = [(line, cell) for line, cell in zip(lines, cells, strict=True) if line.severity]
    series = []
    for name in names:
        own = [(line, cell) for line, cell in pairs if line.condition == name]
        series.append(line_of(name, tuple(str(line.severity) for line, _ in own),
                              [cell for _, cell in own]))  # fmt: skip
    return Figure("heat", "severity", "", tuple(series), title=f"{title}: {measure} (%)")
