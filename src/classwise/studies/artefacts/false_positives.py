"""Which classes attract mistakes: C_FPS, and one-vs-rest accuracy beside recall."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from classwise.judging.metrics import ConditionReport
from classwise.studies.artefact import Artefact, ArtefactOptions, Cell, Figure, Series
from classwise.studies.cells import (
    Setting,
    cell_over,
    class_names,
    condition_words,
    line_of,
    notes_of,
    settings_of,
)
from classwise.studies.found import Found, FoundRun, Hole
from classwise.studies.readings import ConditionName

SHARE, ONE_VS_REST, RECALL = "C_FPS", "one-vs-rest accuracy", "recall"


class FalsePositivesOptions(ArtefactOptions):
    """Under one condition, for every row of the study, such as several architectures."""

    kind: Literal["false-positives"]
    condition: ConditionName = "pgd-20"
    weights: str = "last"


def false_positives(found: Found, options: FalsePositivesOptions) -> Artefact:
    """A row per class: C_FPS, one-vs-rest accuracy and recall in every setting."""
    found = found.only(options.where)
    shown = replace(found, runs=(*found.runs, *found.theirs))
    settings = settings_of(shown)
    names = class_names(shown, options.condition, options.weights)
    cells = {
        (what, one.label): [_cell(one, what, name, options) for name in names]
        for what in (SHARE, ONE_VS_REST, RECALL)
        for one in settings
    }
    return Artefact(
        name=options.file_name,
        title=options.title,
        head=("class", *(f"{what}, {label}" for what, label in cells)),
        rows=tuple(
            (Cell(words=name), *(column[number] for column in cells.values()))
            for number, name in enumerate(names)
        ),
        notes=(
            *notes_of(shown, (options.condition,), (options.weights,)),
            f"Under {condition_words(found, options.condition)}. C_FPS: of all mistakes, the share "
            "that was called this class; they sum to 100 %.",
            "One-vs-rest accuracy, (TP + TN) / N, is 1 − 1/K in data of K equal classes for one "
            "that is never named; recall is the share of its own images that are recognised.",
            *(f"{one.labels['recipe']}: {one.words}." for one in found.theirs),
            *((options.note,) if options.note else ()),
        ),
        figure=_figure(settings, names, cells, len(settings) - len(found.theirs)),
    )


def _cell(setting: Setting, what: str, name: str, options: FalsePositivesOptions) -> Cell:
    def read(run: FoundRun) -> float:
        return _READERS[what](run.report(options.condition, options.weights), name)

    return cell_over(setting.runs, read)


def _share(report: ConditionReport, name: str) -> float:
    shares = report.false_positive_share
    if not any(shares.values()):
        raise Hole("no mistakes: nothing to share")
    return shares[name]


def _recall(report: ConditionReport, name: str) -> float:
    rate = report.by_class[name]
    if rate is None:
        raise Hole(f"no images of {name}")
    return rate


_READERS: dict[str, Callable[[ConditionReport, str], float]] = {
    SHARE: _share,
    ONE_VS_REST: lambda report, name: report.one_vs_rest_accuracy[name],
    RECALL: _recall,
}


def _figure(
    settings: Sequence[Setting],
    names: tuple[str, ...],
    cells: dict[tuple[str, str], list[Cell]],
    ours: int,
) -> Figure:
    """C_FPS of every setting; one-vs-rest accuracy beside recall as means over ours, the first."""
    shares = Figure(
        "bars",
        "class",
        SHARE,
        tuple(line_of(one.label, names, cells[SHARE, one.label]) for one in settings),
        title="share of all mistakes that is called this class",
        level=1 / len(names),
    )
    both = tuple(
        Series(f"{what}, mean", names, _means([cells[what, one.label] for one in settings[:ours]]))
        for what in (ONE_VS_REST, RECALL)
    )
    rates = Figure("bars", "class", "rate", both, title="two ways to rate a class")
    return Figure("bars", "", "", panels=(shares, rates))


def _means(columns: Sequence[Sequence[Cell]]) -> tuple[float | None, ...]:
    found: list[float | None] = []
    for cells in zip(*columns, strict=True):
        known = [cell.mean for cell in cells if cell.mean is not None]
        found.append(sum(known) / len(known) if known else None)
    return tuple(found)
