"""Errors by factor of variation, such as those of ImageNet-X, and their ratio to the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from classwise.errors import unknown
from classwise.judging.imagenet import FACTORS
from classwise.judging.rates import ANNOTATED, GroupReport
from classwise.studies.artefact import Artefact, ArtefactOptions, Cell, Figure
from classwise.studies.cells import (
    Setting,
    cell_over,
    condition_words,
    line_of,
    notes_of,
    settings_of,
)
from classwise.studies.found import Found, FoundRun, Hole
from classwise.studies.readings import ConditionName

ERROR, RATIO, SPILL = "error", "error ratio", "spill-over"
TIMES = "×"


class FactorsOptions(ArtefactOptions):
    """A grouping of images by factor; `base` is the row that spill-over is measured from."""

    kind: Literal["factors"]
    grouping: str = "factor"
    condition: ConditionName = "clean"
    weights: str = "last"
    base: str = ""


def factors(found: Found, options: FactorsOptions) -> Artefact:
    """A row per factor: error and error ratio of every setting, and how its ratio moves."""
    found = found.only(options.where)
    settings = settings_of(found)
    labels = [one.label for one in settings]
    if options.base and options.base not in labels:
        raise unknown("row of the study", options.base, labels)
    base = next((one for one in settings if one.label == options.base), None)
    names = _names(found, options)
    columns: dict[tuple[str, str], list[Cell]] = {}
    for what in (ERROR, RATIO, *((SPILL,) if base else ())):
        for one in settings:
            if what == SPILL and one is base:
                continue
            columns[what, one.label] = [_cell(one, base, what, name, options) for name in names]
    return Artefact(
        name=options.file_name,
        title=options.title,
        head=(options.grouping, *(f"{what}, {label}" for what, label in columns)),
        rows=tuple(
            (Cell(words=name), *(cells[number] for cells in columns.values()))
            for number, name in enumerate(names)
        ),
        notes=(
            *notes_of(found, (options.condition,), (options.weights,)),
            f"Under {condition_words(found, options.condition)}. The error ratio is the error on "
            "images with a factor over that on all annotated images: above 1, they are harder.",
            *(
                (f"Spill-over: the error ratio less that of {options.base} with the same seed.",)
                if base
                else ()
            ),
            *((options.note,) if options.note else ()),
        ),
        figure=_figure(settings, names, columns),
    )


def _groups(run: FoundRun, options: FactorsOptions) -> GroupReport:
    report = run.report(options.condition, options.weights)
    if options.grouping not in report.groupings:
        raise Hole(f"not audited by {options.grouping}: these data have no such annotations")
    return report.by(options.grouping)


def _names(found: Found, options: FactorsOptions) -> tuple[str, ...]:
    """The groups of the first run that has them; without any, ImageNet-X's own."""
    for run in found.runs:
        try:
            names = _groups(run, options).tally.names
        except Hole:
            continue
        return tuple(name for name in names if name != ANNOTATED)
    return FACTORS


def _cell(
    setting: Setting, base: Setting | None, what: str, name: str, options: FactorsOptions
) -> Cell:
    def read(run: FoundRun) -> float:
        if what == ERROR:
            rate = _groups(run, options).by_group.get(name)
            if rate is None:
                raise Hole(f"no images of {name}")
            return 1 - rate
        ratio = _ratio(run, name, options)
        if what == RATIO or base is None:
            return ratio
        same = [one for one in base.runs if one.seed == run.seed]
        if not same:
            raise Hole(f"{base.label} has no seed {run.seed}")
        return ratio - _ratio(same[0], name, options)

    return cell_over(setting.runs, read) if what == ERROR else cell_over(setting.runs, read, TIMES)


def _ratio(run: FoundRun, name: str, options: FactorsOptions) -> float:
    ratios = _groups(run, options).error_ratios
    if ratios is None:
        raise Hole(f"{options.grouping} does not say which images were annotated: no ratio")
    ratio = ratios.get(name)
    if ratio is None:
        raise Hole(f"no images of {name}, or no error at all")
    return ratio


def _figure(
    settings: Sequence[Setting],
    names: tuple[str, ...],
    columns: dict[tuple[str, str], list[Cell]],
) -> Figure:
    def panel(what: str, unit: str, level: float | None) -> Figure:
        series = tuple(line_of(one.label, names, columns[what, one.label]) for one in settings)
        return Figure("bars", "factor", what, series, unit=unit, level=level)

    return Figure("bars", "", "", panels=(panel(ERROR, "%", None), panel(RATIO, TIMES, 1.0)))
