"""Which class was the worst in every epoch, how often that changed, and when it settled."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from classwise.judging.vulnerable import WorstOverEpochs
from classwise.studies.artefact import Artefact, ArtefactOptions, Cell, Figure, Series
from classwise.studies.cells import notes_of, settings_of
from classwise.studies.epochs import OverEpochs
from classwise.studies.found import Found, Hole
from classwise.studies.looks import LookOption, SeedsOver, split_notes


class VulnerableOptions(ArtefactOptions):
    """The vulnerable class over training.

    Benz, section 3.1: whether the vulnerable class changes during the training.
    """

    kind: Literal["vulnerable"]
    of: tuple[LookOption, ...] = Field(min_length=1)


def vulnerable(found: Found, options: VulnerableOptions) -> Artefact:
    """Say run by run which class was the worst, and draw it with its accuracy."""
    found = found.only(options.where)
    rows, panels = [], []
    for setting in settings_of(found):
        for look in options.of:
            seeds = SeedsOver.of(setting.runs, look)
            name = setting.label + (f", {look}" if len(options.of) > 1 else "")
            for run, seen in zip(seeds.runs, seeds.by_run, strict=True):
                named = Cell(words=name), Cell(words=run.seed)
                worst = seen if isinstance(seen, Hole) else worst_of(seen)
                rows.append((*named, *_cells(worst)))
                if isinstance(worst, WorstOverEpochs):
                    panels.append(_panel(f"{name}, seed {run.seed}", worst))
    figure = Figure("points", "epoch", "accuracy of the worst class", panels=tuple(panels))
    if len(panels) == 1:
        figure = replace(panels[0], title="")
    return Artefact(
        options.file_name,
        options.title,
        (
            *("run", "seed", "looks", "changes", "worst at the end", "since epoch"),
            "looks at which it was the worst",
        ),
        tuple(rows),
        (
            *notes_of(found),
            "The first class where several are equal. Histories keep rates without counts, so "
            "there are no intervals: with few images the worst class changes by chance, too.",
            *split_notes(options.of),
            *([options.note] if options.note else []),
        ),
        figure if panels else None,
    )


def worst_of(seen: OverEpochs) -> WorstOverEpochs | Hole:
    """The worst class of each epoch that has one."""
    there = [place for place, worst in enumerate(seen.worst) if not np.isnan(worst)]
    if not there:
        return Hole(f"{seen.said}: no class has samples")
    return WorstOverEpochs(
        seen.said,
        tuple(seen.epochs[place] for place in there),
        tuple(seen.class_names[int(np.nanargmin(seen.rates[place]))] for place in there),
        tuple(float(seen.worst[place]) for place in there),
    )


def _cells(worst: WorstOverEpochs | Hole) -> tuple[Cell, ...]:
    if isinstance(worst, Hole):
        return (Cell(hole=str(worst)),) * 5
    last = worst.worst[-1]
    return (
        Cell((float(len(worst.epochs)),), unit=""),
        Cell((float(worst.changes),), unit=""),
        Cell(words=last),
        Cell((float(worst.settled),), unit=""),
        Cell((worst.shares[last],)),
    )


def _panel(title: str, worst: WorstOverEpochs) -> Figure:
    """The accuracy of the worst class over epochs, by which class it is."""
    looks = list(zip(worst.epochs, worst.worst, worst.rates, strict=True))
    series = [
        Series(
            name,
            tuple(float(epoch) for epoch, one, _ in looks if one == name),
            tuple(rate for _, one, rate in looks if one == name),
        )
        for name in dict.fromkeys(worst.worst)
    ]
    return Figure("points", "epoch", "accuracy of the worst class", tuple(series), title=title)
