"""Class by class: bars of several rows, from their mean, from a base row, or sorted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from classwise.errors import ClasswiseError, unknown
from classwise.spelling import few_names
from classwise.studies.artefact import PERCENT, POINTS, Artefact, ArtefactOptions, Cell, Figure
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
from classwise.studies.readings import ConditionName, Read, report_of

MOST_BARS = 20  # classes; of more, a line is drawn


class ClassesOptions(ArtefactOptions):
    """Accuracy, or error, of every class in every row.

    `subtract = "mean"` takes the mean over classes off each, `"base"` the same class of another
    row: `bases = {"AT + CFA" = "AT"}`. `sort` puts the classes of each row in their own order.
    """

    kind: Literal["classes"]
    conditions: tuple[ConditionName, ...] = ("pgd-20",)
    weights: str = "last"
    error: bool = False
    sort: bool = False
    subtract: Literal["nothing", "mean", "base"] = "nothing"
    bases: dict[str, str] = Field(default_factory=dict)  # label of a row -> that of its base

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.bases) != (self.subtract == "base"):
            raise ClasswiseError('give bases where subtract is "base", and nowhere else')
        if self.sort and self.subtract == "base":
            raise ClasswiseError("differences to a base are class by class; leave out sort")
        return self

    @property
    def unit(self) -> str:
        """Of all numbers."""
        return PERCENT if self.subtract == "nothing" else POINTS


class Column(NamedTuple):
    """One row of the study under one condition: a column of the table, a set of bars."""

    name: str
    cells: tuple[Cell, ...]  # one for each class, or each place in the order


def classes(found: Found, options: ClassesOptions) -> Artefact:
    """All classes of all rows side by side."""
    found = found.only(options.where)
    settings = {one.label: one for one in settings_of(found)}
    for name in (*options.bases, *options.bases.values()):
        if name not in settings:
            raise unknown("row of the study", name, settings)
    names = class_names(found, options.conditions[0], options.weights)
    shown = [settings[name] for name in options.bases] or list(settings.values())
    columns = [
        _column(found, setting, condition, settings, names, options)
        for setting in shown
        for condition in options.conditions
    ]
    places = tuple(str(place + 1) for place in range(len(names))) if options.sort else names
    return Artefact(
        name=options.file_name,
        title=options.title,
        head=("place" if options.sort else "class", *(column.name for column in columns)),
        rows=tuple(
            (Cell(words=place), *(column.cells[number] for column in columns))
            for number, place in enumerate(places)
        ),
        notes=(
            *notes_of(found, options.conditions, (options.weights,)),
            *_notes(columns, names, options),
            *((options.note,) if options.note else ()),
        ),
        figure=_figure(columns, places, options),
    )


def _column(
    found: Found,
    setting: Setting,
    condition: str,
    settings: Mapping[str, Setting],
    names: Sequence[str],
    options: ClassesOptions,
) -> Column:
    base = settings.get(options.bases.get(setting.label, ""))
    words = setting.label if base is None else f"{setting.label} − {base.label}"
    if len(options.conditions) > 1:
        words += f", {condition_words(found, condition)}"
    readers = [_reader(number, name, condition, base, options) for number, name in enumerate(names)]
    return Column(words, tuple(cell_over(setting.runs, read, options.unit) for read in readers))


def _reader(
    number: int, name: str, condition: str, base: Setting | None, options: ClassesOptions
) -> Callable[[FoundRun], Read]:
    """What is read of a run for one class, or for one place in its own order."""

    def read(run: FoundRun) -> Read:
        rates = _rates(run, condition, options)
        if options.sort:
            ordered = sorted(rates, key=lambda one: rates[one])  # a stable order among equals
            if number >= len(ordered):
                raise Hole("fewer classes have images")
            return Read(rates[ordered[number]], (ordered[number],))
        if name not in rates:
            raise Hole(f"no images of {name}")
        if base is None:
            return Read(rates[name])
        return Read(rates[name] - _rates(_same_seed(run, base), condition, options)[name])

    return read


def _rates(run: FoundRun, condition: str, options: ClassesOptions) -> dict[str, float]:
    """Accuracy or error of the classes that have images, less their mean where wanted."""
    known = report_of(run, condition, options.weights).by_class
    rates = {name: rate for name, rate in known.items() if rate is not None}
    if options.error:
        rates = {name: 1 - rate for name, rate in rates.items()}
    if options.subtract != "mean":
        return rates
    mean = sum(rates.values()) / len(rates)
    return {name: rate - mean for name, rate in rates.items()}


def _same_seed(run: FoundRun, base: Setting) -> FoundRun:
    """The run of the base that has the same seed."""
    for one in base.runs:
        if one.seed == run.seed:
            one.record()
            return one
    raise Hole(f"{base.label} has no seed {run.seed}")


def _notes(columns: Sequence[Column], names: Sequence[str], options: ClassesOptions) -> list[str]:
    said = []
    if options.subtract == "mean":
        said.append("From every class the mean over classes of the same run is taken off.")
    if options.sort:
        said.append("Classes are sorted in each run; beside a number, the class most often there.")
    if options.subtract != "base":
        return said
    said.append("Differences of runs with the same seed.")
    for column in columns:
        means = dict(zip(names, (cell.mean for cell in column.cells), strict=True))
        up, down = (
            [name for name, mean in means.items() if mean is not None and sign * mean > 0]
            for sign in (1, -1)
        )
        if up or down:
            said.append(
                f"{column.name}: {len(up)} of {len(names)} classes above ({few_names(up)}), "
                f"{len(down)} below ({few_names(down)})."
            )
    return said


def _figure(columns: Sequence[Column], places: Sequence[str], options: ClassesOptions) -> Figure:
    what = "error" if options.error else "accuracy"
    titles = {"nothing": what, "mean": f"{what} − mean over classes", "base": f"change of {what}"}
    many = len(places) > MOST_BARS
    x: tuple[float, ...] | tuple[str, ...] = tuple(places)
    if many or options.sort:
        x = tuple(float(number + 1) for number in range(len(places)))
    return Figure(
        kind="lines" if many or options.sort else "bars",
        x_title="class, in its own order" if options.sort else "class",
        y_title=titles[options.subtract],
        series=tuple(line_of(column.name, x, column.cells) for column in columns),
        unit=options.unit,
    )
