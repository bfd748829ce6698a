"""Classes against a swept setting, each averaged over a part of the training: early and late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from classwise.errors import unknown
from classwise.spelling import few_names
from classwise.studies.artefact import POINTS, Artefact, ArtefactOptions, Cell, Figure, Series
from classwise.studies.cells import notes_of, settings_of
from classwise.studies.epochs import OVERALL, OverEpochs, Window, WindowOption
from classwise.studies.found import Found, FoundRun, Hole
from classwise.studies.looks import Look, LookOption, SeedsOver, split_notes, window_note

HARD, EASY = "hard classes, mean", "easy classes, mean"


class WindowOptions(ArtefactOptions):
    """Class lines against an axis, averaged over parts of the run.

    Wei, figure 2 (b) and (c): axis = "eps", of = ["test:robust"], windows = [[0.5, 0.6],
    [0.9, 1.0]]; figure 3: axis = "trades.beta", of = ["test:robust", "test:clean"], windows =
    [[0.75, 0.85]]. Section 3.1, that larger margins help hard classes only late: since = "8/255".
    """

    kind: Literal["window"]
    axis: str
    of: tuple[LookOption, ...] = Field(min_length=1)
    windows: tuple[WindowOption, ...] = (Window(0.5, 0.6), Window(0.9, 1.0))
    classes: tuple[str, ...] = ()  # those that have a row and a line; all of them without
    since: str = ""  # a value of the axis: the last column is the change from it to the last one


@dataclass(frozen=True)
class Lines:
    """What a row or a line is the mean of: a class, the overall, or half of the classes."""

    name: str
    classes: tuple[str, ...]

    def mean(self, seen: OverEpochs, window: Window) -> float:
        """Over a window of one run, and over the classes."""
        inside = seen.within(window)
        return float(np.mean([inside.line(name).mean() for name in self.classes]))


@dataclass(frozen=True)
class Panel:
    """One look at the runs of one sweep in one window."""

    title: str
    window: Window
    seeds: dict[str, SeedsOver]  # by value of the axis
    rows: tuple[Lines, ...]

    def cell(self, lines: Lines, value: str) -> Cell:
        """Of one value of the axis."""
        return self.seeds[value].cell(lambda seen: lines.mean(seen, self.window))

    def change(self, lines: Lines, since: str, last: str) -> Cell:
        """How much more the last value of the axis gives than another, seed by seed."""
        before = self._by_seed(lines, since)
        after = self._by_seed(lines, last)
        both = [after[seed] - before[seed] for seed in before if seed in after]
        if not both:
            return Cell(hole=f"no seed has both {since} and {last}")
        return Cell(tuple(both), unit=POINTS)

    def _by_seed(self, lines: Lines, value: str) -> dict[str, float]:
        seeds, found = self.seeds[value], dict[str, float]()
        for run, seen in zip(seeds.runs, seeds.by_run, strict=True):
            if isinstance(seen, OverEpochs):
                try:
                    found[run.seed] = lines.mean(seen, self.window)
                except Hole:
                    continue  # said in the cells of its own column
        return {seed: rate for seed, rate in found.items() if rate == rate}


def window(found: Found, options: WindowOptions) -> Artefact:
    """Average every class over windows of the training, against the values of an axis."""
    found = found.only(options.where)
    values = found.values(options.axis)
    if options.since and options.since not in values[:-1]:
        raise unknown(f"value of {options.axis} before its last one", options.since, values[:-1])
    panels, notes = list[Panel](), list[str]()
    for setting in settings_of(found, but=(options.axis,)):
        seen = {look: _by_value(setting.runs, look, options.axis, values) for look in options.of}
        rows, words = _rows(seen[options.of[0]], options)
        notes += [f"{setting.label}: {words}"] if words else []
        for look, seeds in seen.items():
            panels += [
                Panel(f"{setting.label}, {look}, {part}", part, seeds, rows)
                for part in options.windows
            ]
    change = (f"{options.since} to {values[-1]}",) if options.since else ()
    return Artefact(
        options.file_name,
        options.title,
        ("what", "classes", *(f"{options.axis} {value}" for value in values), *change),
        tuple(
            (
                *(Cell(words=panel.title), Cell(words=lines.name)),
                *(panel.cell(lines, value) for value in values),
                *(panel.change(lines, options.since, values[-1]) for _ in change),
            )
            for panel in panels
            for lines in panel.rows
        ),
        (
            *notes_of(found),
            *(window_note(found, part) for part in options.windows),
            *notes,
            *split_notes(options.of),
            *([options.note] if options.note else []),
        ),
        _figure(panels, options.axis, values),
    )


def _by_value(
    runs: Sequence[FoundRun], look: Look, axis: str, values: Sequence[str]
) -> dict[str, SeedsOver]:
    return {
        value: SeedsOver.of([run for run in runs if run.labels.get(axis) == value], look)
        for value in values
    }


def _rows(seeds: dict[str, SeedsOver], options: WindowOptions) -> tuple[tuple[Lines, ...], str]:
    """The overall, every class, and both halves of the classes, with what the halves are."""
    every = [one for of_value in seeds.values() for one in of_value.known]
    if not every:
        return (Lines(OVERALL, (OVERALL,)),), ""
    names = every[0].class_names
    shown = options.classes or names
    rows = [Lines(OVERALL, (OVERALL,)), *(Lines(name, (name,)) for name in shown)]
    hard, easy = halves(every, options.windows)
    if not hard:
        return tuple(rows), ""
    rows += [Lines(HARD, hard), Lines(EASY, easy)]
    words = (
        f"hard is the lower half of the classes under {every[0].said}, by the mean over all values "
        f"of {options.axis} and these parts of the run: {few_names(hard, 10)}."
    )
    return tuple(rows), words


def halves(
    every: Sequence[OverEpochs], windows: Sequence[Window]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The lower half of the classes and the others, as far as they have samples.

    All values of the axis count alike: a class chosen for what it did at one of them would change
    from that one to another by chance alone.
    """
    means = []
    for seen in every:
        for part in windows:
            try:
                means.append(seen.within(part).rates.mean(0))
            except Hole:
                continue  # nobody looked there
    if not means:
        return (), ()
    mean, names = np.mean(means, axis=0), every[0].class_names
    order = [
        names[place] for place in np.argsort(mean, kind="stable") if mean[place] == mean[place]
    ]
    half = len(order) // 2
    return tuple(order[:half]), tuple(order[half:])


def _figure(panels: Sequence[Panel], axis: str, values: Sequence[str]) -> Figure:
    drawn = []
    for panel in panels:
        series = []
        for lines in panel.rows:
            if len(lines.classes) == 1:
                means = tuple(panel.cell(lines, value).mean for value in values)
                series.append(Series(lines.name, tuple(values), means))
        drawn.append(Figure("lines", axis, "accuracy", tuple(series), title=panel.title))
    return Figure("lines", axis, "accuracy", panels=tuple(drawn))
