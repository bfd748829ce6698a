"""Superclasses, or the groups of any other grouping, ranked by their accuracy over all methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import Field

from classwise.errors import unknown
from classwise.judging.groups import SUPERCLASS
from classwise.spelling import few_names
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

NO_GROUP = "no group known yet"  # the one line of a table without any run


class RankingOptions(ArtefactOptions):
    """Groups in the order of their mean over methods under the last of the conditions."""

    kind: Literal["ranking"]
    grouping: str = SUPERCLASS
    conditions: tuple[ConditionName, ...] = Field(("pgd-20",), min_length=1)
    weights: str = "last"
    leave_out: tuple[str, ...] = ()  # labels of rows that are no methods to average, as CLEAN


class Ranked(NamedTuple):
    """One group: its mean over methods under each condition, and each method under the last."""

    name: str
    means: tuple[Cell, ...]
    methods: tuple[Cell, ...]


def ranking(found: Found, options: RankingOptions) -> Artefact:
    """Rank the groups by their mean accuracy: over seeds, then over methods."""
    found = found.only(options.where)
    settings = settings_of(found)
    labels = [one.label for one in settings]
    for label in options.leave_out:
        if label not in labels:
            raise unknown("row of the study", label, labels)
    methods = [one for one in settings if one.label not in options.leave_out]
    groups = [_ranked(name, methods, options) for name in _groups(found, options)]
    groups.sort(key=lambda one: -(one.means[-1].mean or 0.0))
    ranks = _ranks(groups)
    heads = [f"mean over {len(methods)} methods, {condition_words(found, condition)}"
             for condition in options.conditions]  # fmt: skip
    return Artefact(
        name=options.file_name,
        title=options.title,
        head=(options.grouping, *heads, "place in each method", *(one.label for one in methods)),
        rows=tuple(
            (Cell(words=one.name), *one.means, Cell(words=place), *one.methods)
            for one, place in zip(groups, ranks, strict=True)
        ),
        notes=(
            *notes_of(found, options.conditions, (options.weights,)),
            f"Sorted by the mean over methods under {options.conditions[-1]}; a superclass is the "
            "mean of its classes.",
            *((f"Left out: {few_names(options.leave_out, 10)}.",) if options.leave_out else ()),
            *((options.note,) if options.note else ()),
        ),
        figure=_figure(groups, options),
    )


def _groups(found: Found, options: RankingOptions) -> tuple[str, ...]:
    """Names of the groups, from the first run that has any."""
    for run in found.runs:
        try:
            return tuple(_rates(run, options.conditions[-1], options))
        except Hole:
            continue
    return (NO_GROUP,)


def _rates(run: FoundRun, condition: str, options: RankingOptions) -> dict[str, float | None]:
    """Accuracy of each group; a superclass is the mean of its classes, as the papers have it."""
    report = run.report(condition, options.weights)
    if options.grouping == SUPERCLASS:
        known = report.by_superclass
        if known is None:
            raise Hole("these data have no superclasses")
        return known
    if options.grouping not in report.groupings:
        raise Hole(f"not audited with the grouping {options.grouping}")
    return report.by(options.grouping).by_group


def _ranked(name: str, methods: Sequence[Setting], options: RankingOptions) -> Ranked:
    def of(condition: str) -> tuple[Cell, ...]:
        def read(run: FoundRun) -> float:
            rate = _rates(run, condition, options).get(name)
            if rate is None:
                raise Hole(f"no images of {name}")
            return rate

        return tuple(cell_over(one.runs, read) for one in methods)

    by_condition = [of(condition) for condition in options.conditions]
    means = tuple(_mean(cells, methods) for cells in by_condition)
    return Ranked(name, means, by_condition[-1])


def _mean(cells: Sequence[Cell], methods: Sequence[Setting]) -> Cell:
    """The mean over methods, seed by seed; methods without a number, or some seeds, are said.

    Where methods have different numbers of seeds, each counts by its own mean, as one number.
    """
    known = [cell for cell in cells if cell.rates]
    missing = [one.label for one, cell in zip(methods, cells, strict=True) if not cell.rates]
    hole = f"{len(missing)} of {len(methods)} methods missing: {few_names(missing)}"
    if not known:
        return Cell(hole=cells[0].hole if cells else "no method")
    if any(cell.hole for cell in known) or len({len(cell.rates) for cell in known}) > 1:
        rates: tuple[float, ...] = (sum(cell.mean or 0.0 for cell in known) / len(known),)
    else:
        by_seed = zip(*(cell.rates for cell in known), strict=True)
        rates = tuple(sum(seed) / len(known) for seed in by_seed)
    return Cell(rates, hole=hole if missing else "")


def _ranks(groups: Sequence[Ranked]) -> list[str]:
    """In which places each group stands over the methods, 1 for the best."""
    places: list[list[int]] = [[] for _ in groups]
    for method in zip(*(one.methods for one in groups), strict=True):
        means = [cell.mean for cell in method]
        for number, mean in enumerate(means):
            if mean is not None:
                better = sum(1 for other in means if other is not None and other > mean)
                places[number].append(better + 1)
    return [
        "–" if not one else f"{min(one)} to {max(one)}" if min(one) < max(one) else f"{one[0]}"
        for one in places
    ]


def _figure(groups: Sequence[Ranked], options: RankingOptions) -> Figure:
    names = tuple(one.name for one in groups)
    series = tuple(
        line_of(condition, names, [one.means[number] for one in groups])
        for number, condition in enumerate(options.conditions)
    )
    return Figure("bars", options.grouping, "mean accuracy over methods", series)
