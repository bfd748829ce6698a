"""Robust overfitting by class: what a class has on the images that train, and on test images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from classwise.studies.artefact import POINTS, Artefact, ArtefactOptions, Cell, Figure, Series
from classwise.studies.cells import Setting, cell_over, notes_of, settings_of
from classwise.studies.epochs import OVERALL, classes_meant, gaps
from classwise.studies.found import Found, FoundRun, Hole
from classwise.studies.looks import (
    Look,
    LookOption,
    SeedsOver,
    known_number,
    over_epochs,
    split_notes,
)

MOST_PANELS = 12  # of one setting; more classes than that are points of one panel
HEAD = (
    *("run", "class", "train, own radius", "test, own radius", "test, judge's radius"),
    *("train minus test", "of it: other images", "of it: other radius"),
    *("highest on test", "at epoch", "fall since then"),
)


class OverfittingOptions(ArtefactOptions):
    """Training against test over the epochs, by class, at both radii.

    Ahn, section 3.3: trained with eps 1/255, fox has above 80 % of the training images right under
    attack and 0 % of the test images, which are attacked with 8/255. That gap has two parts: other
    images, and another radius. `own` is the look at test images with the radius of training, such
    as test:pgd-10(eps=1/255).
    """

    kind: Literal["overfitting"]
    classes: tuple[str, ...] = Field((OVERALL,), min_length=1)  # names, overall, worst, or "all"
    train: LookOption = Look("training", "robust")
    own: LookOption = Look("test", "own")
    judged: LookOption = Look("test", "robust")


@dataclass(frozen=True)
class Reader:
    """Reads one class of a run in the last epoch that all its looks have."""

    of: str
    options: OverfittingOptions

    def last(self, run: FoundRun, look: Look) -> float:
        """The last number of a look."""
        seen = over_epochs(run, look)
        return known_number(float(seen.line(self.of)[-1]))

    def less(self, run: FoundRun, one: Look, other: Look) -> float:
        """The last number of one look less that of another."""
        return self.last(run, one) - self.last(run, other)

    def top(self, run: FoundRun) -> tuple[int, float, float]:
        """The epoch that is highest on test, its number, and the last one."""
        seen = over_epochs(run, self.options.judged)
        line = seen.line(self.of)
        if np.isnan(line).all():
            raise Hole("no samples of the class")
        place = int(np.nanargmax(line))
        return seen.epochs[place], float(line[place]), known_number(float(line[-1]))


def overfitting(found: Found, options: OverfittingOptions) -> Artefact:
    """Put training and test side by side for every class, and draw both over the epochs."""
    found = found.only(options.where)
    rows, panels = list[tuple[Cell, ...]](), list[Figure]()
    for setting in settings_of(found):
        looks = dict.fromkeys(looks_of(options))
        seeds = {look: SeedsOver.of(setting.runs, look) for look in looks}
        known = [one.class_names for over in seeds.values() for one in over.known]
        names = classes_meant(options.classes, known[0] if known else ())
        own = [_row(setting, Reader(name, options)) for name in names]
        many = len(names) > MOST_PANELS
        panels += [_cloud(setting.label, own)] if many else _panels(setting.label, seeds, names)
        rows += own
    return Artefact(
        options.file_name,
        options.title,
        HEAD,
        tuple(rows),
        (
            *notes_of(found),
            f"At the last look: {options.train}, {options.own} and {options.judged}. The gap "
            "between the first and the last is what other images cost at the radius of training, "
            "and what the judge's radius costs on the same images.",
            "The highest on test is the best of many looks, so that some fall is there by chance.",
            *split_notes(looks_of(options)),
            *([options.note] if options.note else []),
        ),
        Figure("lines", "epoch", "accuracy", panels=tuple(panels)) if panels else None,
    )


def looks_of(options: OverfittingOptions) -> tuple[Look, ...]:
    """The three looks."""
    return options.train, options.own, options.judged


def _row(setting: Setting, reader: Reader) -> tuple[Cell, ...]:
    train, own, judged = looks_of(reader.options)

    def cell(read: Callable[[FoundRun], float], **more: str) -> Cell:
        return cell_over(setting.runs, read, **more)

    return (
        Cell(words=setting.label),
        Cell(words=reader.of),
        cell(lambda run: reader.last(run, train)),
        cell(lambda run: reader.last(run, own)),
        cell(lambda run: reader.last(run, judged)),
        cell(lambda run: reader.less(run, train, judged), unit=POINTS),
        cell(lambda run: reader.less(run, train, own), unit=POINTS),
        cell(lambda run: reader.less(run, own, judged), unit=POINTS),
        cell(lambda run: reader.top(run)[1]),
        cell(lambda run: float(reader.top(run)[0]), unit=""),
        cell(lambda run: reader.top(run)[1] - reader.top(run)[2], unit=POINTS),
    )


def _panels(label: str, seeds: Mapping[Look, SeedsOver], names: Sequence[str]) -> list[Figure]:
    """Every class over the epochs, in a panel of its own."""
    drawn = []
    for name in names:
        series = [_series(str(look), over, name) for look, over in seeds.items() if over.known]
        drawn.append(Figure("lines", "epoch", "accuracy", tuple(series), title=f"{label}, {name}"))
    return drawn


def _cloud(label: str, rows: Sequence[tuple[Cell, ...]]) -> Figure:
    """Many classes at the last look: a point for each, training against test."""
    train, test = HEAD.index("train, own radius"), HEAD.index("test, judge's radius")
    means = [(row[train].mean, row[test].mean) for row in rows]
    points = [(x, y) for x, y in means if x is not None and y is not None]
    x, y = tuple(100 * x for x, _ in points), tuple(y for _, y in points)
    series = Series("a class", x, y)
    return Figure("points", "train, own radius", "test, judge's radius", (series,), title=label)


def _series(name: str, seeds: SeedsOver, line: str) -> Series:
    """The mean over seeds."""
    x = tuple(float(epoch) for epoch in seeds.epochs)
    return Series(name, x, gaps(seeds.values(line).mean(0)))
