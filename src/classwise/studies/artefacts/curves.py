"""Classes over the epochs of training, in panels and lines as the study asks for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from classwise.errors import ClasswiseError
from classwise.statistics.intervals import Rates
from classwise.studies.artefact import PERCENT, Artefact, ArtefactOptions, Cell, Figure, Series
from classwise.studies.cells import Setting, notes_of, settings_of
from classwise.studies.epochs import OVERALL, WORST, OverEpochs, classes_meant, gaps
from classwise.studies.found import Found, Hole
from classwise.studies.looks import Look, LookOption, SeedsOver, can_show, split_notes

CLASS, LOOK = "class", "look"


class CurvesOptions(ArtefactOptions):
    """Lines over epochs.

    Ahn, figures 2, 7 and 8: classes = ["chair", "fox"], of = ["train:clean", "train:robust"],
    panels = ["class", "look"]; figures 3, 9 and 10: the same with one look over methods. Wei,
    figure 2 (a): classes = ["overall"], of = ["test:robust"]; figure 5 (b): of =
    ["settings:margin"], classes = ["all"]; the β of each class: ["settings:beta"]. Benz,
    section 3.1: every class during the whole training.
    """

    kind: Literal["curves"]
    of: tuple[LookOption, ...] = Field(min_length=1)
    classes: tuple[str, ...] = (OVERALL, WORST)  # names, overall, worst, or "all"
    panels: tuple[str, ...] = (CLASS,)  # "class", "look" or axes: each combination is one panel

    @model_validator(mode="after")
    def _one_unit_in_a_panel(self) -> Self:
        kinds = {look.split == "settings" for look in self.of}
        if len(kinds) > 1 and LOOK not in self.panels:
            raise ClasswiseError(
                'settings and accuracies have no axis in common; add "look" to the panels'
            )
        return self


@dataclass(frozen=True)
class Line:
    """One class of one setting under one look, over the epochs that all seeds have."""

    panel: str
    name: str
    look: Look
    of: str  # a class, overall or worst
    seeds: SeedsOver

    @property
    def unit(self) -> str:
        """Settings are numbers, all else is a rate."""
        return "" if self.look.split == "settings" else PERCENT

    @cached_property
    def values(self) -> Rates:
        """Seeds × epochs."""
        return self.seeds.values(self.of)

    @property
    def top(self) -> int | None:
        """The epoch with the highest mean over seeds; None without any number."""
        mean = self.values.mean(0) if len(self.values) else np.array([])
        return None if np.isnan(mean).all() else self.seeds.epochs[int(np.nanargmax(mean))]


def curves(found: Found, options: CurvesOptions) -> Artefact:
    """Draw every class of every setting over the epochs, and say how it ends and how it swings."""
    found = found.only(options.where)
    every = list(_lines(found, options))
    return Artefact(
        options.file_name,
        options.title,
        ("line", "last", "highest", "epoch of the highest", "mean change between looks"),
        tuple(_row(line) for line in every),
        (
            *notes_of(found),
            "The highest is of the mean over seeds, and the higher the more looks there are; a "
            "change is |difference| of two looks in a row, on the average.",
            *split_notes(options.of),
            *([options.note] if options.note else []),
        ),
        _figure(every),
    )


def _lines(found: Found, options: CurvesOptions) -> Iterator[Line]:
    """All lines, panel by panel."""
    axes = [panel for panel in options.panels if panel not in (CLASS, LOOK)]
    for values in product(*(found.values(axis) for axis in axes)):
        inside = found.only(dict(zip(axes, values, strict=True)))
        for setting in settings_of(inside):
            for look in (one for one in options.of if can_show(setting.runs, one)):
                yield from _of_setting(setting, look, values, options)


def _of_setting(
    setting: Setting, look: Look, panel: Sequence[str], options: CurvesOptions
) -> Iterator[Line]:
    """The lines of runs that differ in their seed alone, under one look."""
    seeds = SeedsOver.of(setting.runs, look)
    for name in classes_meant(options.classes, seeds.known[0].class_names if seeds.known else ()):
        title, words = list(panel), [setting.label]
        for axis, value, several in ((CLASS, name, True), (LOOK, str(look), len(options.of) > 1)):
            if axis in options.panels:
                title.append(value)
            elif several:
                words.append(value)
        yield Line(", ".join(title), ", ".join(words), look, name, seeds)


def _row(line: Line) -> tuple[Cell, ...]:
    """How a line ends, where it is highest, and how much it swings."""
    top, seeds = line.top, line.seeds

    def at(epoch: int | None) -> Cell:
        return seeds.cell(
            lambda seen: seen.line(line.of)[seen.epochs.index(epoch)] if epoch else math.nan,
            line.unit,
        )

    def swing(seen: OverEpochs) -> float:
        moves = np.abs(np.diff(seen.line(line.of)))
        if not len(moves):
            raise Hole("one look alone")
        return float(moves.mean())

    return (
        Cell(words=", ".join(word for word in (line.panel, line.name) if word)),
        at(seeds.epochs[-1] if seeds.epochs else None),
        at(top),
        Cell(hole="no number") if top is None else Cell(words=str(top)),
        seeds.cell(swing, line.unit),
    )


def _figure(every: Sequence[Line]) -> Figure:
    panels: dict[str, list[Line]] = {}
    for line in every:
        panels.setdefault(line.panel, []).append(line)
    drawn = []
    for title, lines in panels.items():
        unit = lines[0].unit
        series = tuple(_series(line) for line in lines if len(line.values))
        what = "accuracy" if unit else lines[0].look.seen
        drawn.append(Figure("lines", "epoch", what, series, title=title, unit=unit))
    if len(drawn) == 1:
        return drawn[0]
    first = drawn[0]
    return replace(first, series=(), title="", panels=tuple(drawn))


def _series(line: Line) -> Series:
    """The mean over seeds, and the lowest and highest of them where there are several."""
    x = tuple(float(epoch) for epoch in line.seeds.epochs)
    mean = gaps(line.values.mean(0))
    if len(line.values) < 2:
        return Series(line.name, x, mean)
    return Series(line.name, x, mean, gaps(line.values.min(0)), gaps(line.values.max(0)))
