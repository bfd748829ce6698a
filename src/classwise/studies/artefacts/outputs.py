"""Two attacks side by side: one on the logits of the classes and one on all outputs, as a rule."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from classwise.studies.artefact import POINTS, Artefact, ArtefactOptions, Cell, Figure
from classwise.studies.cells import (
    Setting,
    cell_over,
    condition_words,
    line_of,
    notes_of,
    settings_of,
)
from classwise.studies.found import Found, FoundRun, Hole
from classwise.studies.readings import ConditionName, Measure, read_run

Pair = tuple[ConditionName, ConditionName]
LOGITS = (
    "An attack on the logits of the classes alone does not see the further outputs of a network; "
    "whether a prediction is right is decided among the classes in both."
)


class OutputsOptions(ArtefactOptions):
    """Pairs of conditions, each with measures of both and of their difference, second − first."""

    kind: Literal["outputs"]
    pairs: tuple[Pair, ...] = Field((("pgd-40", "pgd-40(logits=all)"),), min_length=1)
    measures: tuple[Measure, ...] = Field(("average", "worst"), min_length=1)
    weights: str = "last"


def outputs(found: Found, options: OutputsOptions) -> Artefact:
    """A row per setting; the difference is taken in each run, before the mean over seeds."""
    found = found.only(options.where)
    columns = [(measure, pair) for pair in options.pairs for measure in options.measures]
    head = [""]
    for measure, (first, second) in columns:
        head += [f"{measure}, {condition_words(found, one)}" for one in (first, second)]
        head.append(f"{measure}, difference")
    settings = settings_of(found)
    rows = []
    for setting in settings:
        cells = [Cell(words=setting.label)]
        for measure, pair in columns:
            cells += _three(setting, measure, pair, options.weights)
        rows.append(tuple(cells))
    conditions = [condition for pair in options.pairs for condition in pair]
    return Artefact(
        name=options.file_name,
        title=options.title,
        head=tuple(head),
        rows=tuple(rows),
        notes=(
            *notes_of(found, conditions, (options.weights,)),
            *((LOGITS,) if any("logits=" in one for one in conditions) else ()),
            *((options.note,) if options.note else ()),
        ),
        figure=_figure(settings, head, rows, " and ".join(options.measures)),
    )


def _three(setting: Setting, measure: str, pair: Pair, weights: str) -> list[Cell]:
    first, second = pair

    def change(run: FoundRun) -> float:
        before, after = (read_run(run, measure, one, weights).rate for one in pair)
        sizes = [run.report(one, weights).counts.sizes for one in pair]
        if not torch.equal(*sizes):
            counts = " and ".join(str(int(one.sum())) for one in sizes)
            raise Hole(f"audited on {counts} images: a difference would be of other images, too")
        return after - before

    return [
        cell_over(setting.runs, lambda run: read_run(run, measure, first, weights)),
        cell_over(setting.runs, lambda run: read_run(run, measure, second, weights)),
        cell_over(setting.runs, change, POINTS),
    ]


def _figure(
    settings: tuple[Setting, ...], head: list[str], rows: list[tuple[Cell, ...]], title: str
) -> Figure:
    """Both attacks of every measure and pair, in every setting."""
    labels = tuple(one.label for one in settings)
    shown = [place for place, words in enumerate(head) if place and place % 3]
    series = tuple(line_of(head[place], labels, [row[place] for row in rows]) for place in shown)
    return Figure("bars", "", title, series)
