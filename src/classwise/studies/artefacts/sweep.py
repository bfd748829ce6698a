"""A sweep: measures, or chosen classes, against one axis; a line per other setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, Self

from pydantic import model_validator

from classwise.errors import ClasswiseError
from classwise.spelling import few_names, parse_value
from classwise.studies.artefact import Artefact, ArtefactOptions, Cell, Figure
from classwise.studies.cells import (
    Setting,
    cell_over,
    class_names,
    condition_words,
    line_of,
    notes_of,
    settings_of,
)
from classwise.studies.found import Found, FoundRun
from classwise.studies.readings import ConditionName, Measure, Read, read_class, read_run

ALL = "all"  # every class
LEVELS = "/255"


class SweepOptions(ArtefactOptions):
    """What is drawn against `x`; panels are by what is drawn, by condition or by line."""

    kind: Literal["sweep"]
    x: str
    measures: tuple[Measure, ...] = ()
    classes: tuple[str, ...] = ()  # names, or "all"
    conditions: tuple[ConditionName, ...] = ("clean", "pgd-20")
    weights: str = "last"
    panel: Literal["what", "condition", "line"] = "what"
    log_x: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not (self.measures or self.classes):
            raise ClasswiseError("a sweep needs measures, classes or both")
        return self


class Drawn(NamedTuple):
    """One line of the picture, a column of the table."""

    line: Setting
    what: str  # a measure or a class
    condition: str
    cells: tuple[Cell, ...]  # one for each x

    def named(self, *parts: str) -> str:
        """What tells it from others, in words."""
        said = {"line": self.line.label, "what": self.what, "condition": self.condition}
        return ", ".join(said[part] for part in parts)


def sweep(found: Found, options: SweepOptions) -> Artefact:
    """Mean over seeds at every value of an axis, with the deviation as a band."""
    found = found.only(options.where)
    values = _in_order(found.values(options.x))
    outside = [one for one in found.runs if options.x not in one.labels]
    inside = replace(found, runs=tuple(one for one in found.runs if options.x in one.labels))
    drawn = [
        Drawn(line, what, condition, _cells(line, what, condition, values, options))
        for line in settings_of(inside, but=(options.x,))
        for what in (*options.measures, *_classes(inside, options))
        for condition in options.conditions
    ]
    several = _several(drawn)
    return Artefact(
        name=options.file_name,
        title=options.title,
        head=(options.x, *(_head(inside, one, several) for one in drawn)),
        rows=tuple(
            (Cell(words=value), *(one.cells[place] for one in drawn))
            for place, value in enumerate(values)
        ),
        notes=(
            *notes_of(inside, options.conditions, (options.weights,)),
            "Bands: ± one sample deviation over seeds, where there are several.",
            *((_left_out(outside, options.x),) if outside else ()),
            *((options.note,) if options.note else ()),
        ),
        figure=_figure(drawn, values, options),
    )


def _cells(
    line: Setting, what: str, condition: str, values: Sequence[str], options: SweepOptions
) -> tuple[Cell, ...]:
    def read(run: FoundRun) -> Read:
        if what in options.measures:
            return read_run(run, what, condition, options.weights)
        return read_class(run.report(condition, options.weights), what)

    return tuple(
        cell_over([run for run in line.runs if run.labels[options.x] == value], read)
        for value in values
    )


def _classes(found: Found, options: SweepOptions) -> tuple[str, ...]:
    """The classes that are drawn."""
    if ALL not in options.classes:
        return options.classes
    return class_names(found, options.conditions[0], options.weights)


def _in_order(values: Sequence[str]) -> tuple[str, ...]:
    """Numbers by their size; other values in the order of the file.

    >>> _in_order(["8/255", "16/255", "2/255"]), _in_order(["sgd", "adamw"])
    (('2/255', '8/255', '16/255'), ('sgd', 'adamw'))
    """
    if all(_number(value) is not None for value in values):
        return tuple(sorted(values, key=lambda value: _number(value) or 0.0))
    return tuple(values)


def _number(value: str) -> float | None:
    found = parse_value(value)
    return None if isinstance(found, bool) or not isinstance(found, int | float) else float(found)


def _places(axis: str, values: Sequence[str]) -> tuple[str, tuple[float, ...] | tuple[str, ...]]:
    """The title of the x axis and the places on it; radii in steps of 1/255.

    >>> _places("eps", ["1/255", "8/255"]), _places("beta", ["0.5", "6"])
    (('eps (1/255)', (1.0, 8.0)), ('beta', (0.5, 6.0)))
    """
    if values and all(value.endswith(LEVELS) for value in values):
        return f"{axis} (1/255)", tuple(float(value.removesuffix(LEVELS)) for value in values)
    numbers = tuple(number for value in values if (number := _number(value)) is not None)
    return axis, numbers if len(numbers) == len(values) else tuple(values)


def _several(drawn: Sequence[Drawn]) -> list[str]:
    """In which parts the lines differ."""
    parts = ("line", "what", "condition")
    return [part for part in parts if len({one.named(part) for one in drawn}) > 1]


def _head(found: Found, one: Drawn, several: Sequence[str]) -> str:
    parts = [part for part in several if part != "condition"]
    words = [one.named(*parts)] if parts else [] if several else [one.what]
    if "condition" in several or not several:
        words.append(condition_words(found, one.condition))
    return ", ".join(words)


def _figure(drawn: Sequence[Drawn], values: Sequence[str], options: SweepOptions) -> Figure:
    x_title, x = _places(options.x, values)
    panels: dict[str, list[Drawn]] = {}
    for one in drawn:
        panels.setdefault(one.named(options.panel), []).append(one)
    rest = [part for part in _several(drawn) if part != options.panel] or ["line"]
    made = tuple(
        Figure(
            kind="lines",
            x_title=x_title,
            y_title=title if options.panel == "what" and title in options.measures else "accuracy",
            series=tuple(line_of(one.named(*rest), x, one.cells) for one in inside),
            title=title,
            log_x=options.log_x,
        )
        for title, inside in panels.items()
    )
    return made[0] if len(made) == 1 else Figure("lines", "", "", panels=made)


def _left_out(runs: Sequence[FoundRun], axis: str) -> str:
    labels = list(
        dict.fromkeys(run.labels.get("row", run.labels.get("recipe", "?")) for run in runs)
    )
    return f"Left out, because they have no {axis}: {few_names(labels)}."
