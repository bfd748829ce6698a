"""A table as the papers print them: rows of methods, columns of measures under conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

from pydantic import Field

from classwise.studies.artefact import Artefact, ArtefactOptions, Cell
from classwise.studies.cells import (
    Setting,
    cell_over,
    condition_words,
    notes_of,
    settings_of,
)
from classwise.studies.found import Found
from classwise.studies.papers.cells import PaperColumn, paper_cell
from classwise.studies.readings import ConditionName, Measure, read_run

NAMED = "Beside the worst and the best accuracy: the class, and how often it was that one."


class Column(NamedTuple):
    """What stands in one column."""

    measure: str
    condition: str
    weights: str


class TableOptions(ArtefactOptions):
    """Every measure under every condition with all weights, beside a table of the paper."""

    kind: Literal["table"]
    measures: tuple[Measure, ...] = ("average", "worst")
    conditions: tuple[ConditionName, ...] = ("clean", "pgd-20")
    weights: tuple[str, ...] = Field(("last",), min_length=1)
    paper_table: str = ""  # of the study's paper, such as "1"; nothing stands beside without

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns, those of the same weights and condition together."""
        return tuple(
            Column(measure, condition, weights)
            for weights in self.weights
            for condition in self.conditions
            for measure in self.measures
        )


def table(found: Found, options: TableOptions) -> Artefact:
    """Mean ± sample deviation over seeds, the class most often worst, the paper's own number."""
    found = found.only(options.where)
    rows = []
    for setting in settings_of(found):
        cells = [_cell(found, setting, column, options) for column in options.columns]
        rows.append((Cell(words=setting.label), *cells))
    return Artefact(
        name=options.file_name,
        title=options.title,
        head=("", *(_head(found, column, options) for column in options.columns)),
        rows=tuple(rows),
        notes=(
            *notes_of(found, options.conditions, options.weights),
            *((NAMED,) if {"worst", "best"} & set(options.measures) else ()),
            *((options.note,) if options.note else ()),
        ),
    )


def _cell(found: Found, setting: Setting, column: Column, options: TableOptions) -> Cell:
    ours = cell_over(
        setting.runs,
        lambda run: read_run(run, *column),
    )
    labels = setting.runs[0].labels
    if not (options.paper_table and "row" in labels):
        return ours
    place = PaperColumn(*column, data=labels.get("data", ""))
    theirs = paper_cell(found.study.paper, options.paper_table, labels["row"], place)
    return ours if theirs is None else replace(ours, paper=theirs.value, doubtful=theirs.doubtful)


def _head(found: Found, column: Column, options: TableOptions) -> str:
    words = f"{column.measure}, {condition_words(found, column.condition)}"
    return f"{words}, {column.weights}" if len(options.weights) > 1 else words
