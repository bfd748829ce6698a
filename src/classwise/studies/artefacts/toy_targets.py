"""Kind `toy-targets`: three classes in a plane, trained without, with and with targeted attacks.

It needs no runs of a study: its networks are so small that they are trained while it is made, and
come out the same every time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from classwise.spelling import spell_eps
from classwise.studies.artefact import Artefact, ArtefactOptions, Cell, Figure, Series
from classwise.studies.found import Found
from classwise.studies.toys.plane import (
    CENTRES,
    DEVIATION,
    GREEN,
    METHODS,
    NAMES,
    Scene,
    Trained,
    places,
    trained,
)

ByMethod = dict[str, list[Trained]]  # seeds in order


class ToyTargetsOptions(ArtefactOptions):
    """The scene; the paper has a sketch and no numbers."""

    kind: Literal["toy-targets"] = "toy-targets"
    shows: Literal["accuracies", "caption"] = "accuracies"
    eps: Annotated[float, Field(gt=0, lt=1)] = Scene.eps
    images: Annotated[int, Field(ge=50)] = Scene.images  # of each class
    epochs: Annotated[int, Field(ge=1)] = Scene.epochs
    seeds: Annotated[int, Field(ge=1)] = 3

    @model_validator(mode="after")
    def _reads_no_runs(self) -> Self:
        if self.where:
            raise ValueError("toy-targets reads no runs; leave `where` out")
        return self

    @property
    def scene(self) -> Scene:
        """What is trained."""
        return Scene(self.eps, self.images, self.epochs)


def toy_targets(_: Found, options: ToyTargetsOptions) -> Artefact:
    """Class accuracies of every method with a picture, or the caption's sentences tried."""
    found = {
        method: [trained(options.scene, method, seed) for seed in range(options.seeds)]
        for method in METHODS
    }
    return (_caption if options.shows == "caption" else _accuracies)(options, found)


def _accuracies(options: ToyTargetsOptions, found: ByMethod) -> Artefact:
    sides: tuple[tuple[str, Callable[[Trained], tuple[float, ...]]], ...] = (
        ("clean", lambda one: one.clean),
        ("robust", lambda one: one.robust),
    )
    head = [f"{name}, {side}" for side, _ in sides for name in (*NAMES, "worst")]
    rows = []
    for method, runs in found.items():
        cells = [
            Cell(rates=tuple(pick(one)[k] for one in runs)) if k < len(NAMES)
            else Cell(rates=tuple(min(pick(one)) for one in runs))
            for _, pick in sides
            for k in range(len(NAMES) + 1)
        ]  # fmt: skip
        more = (
            Cell(rates=tuple(one.to_green for one in runs)),
            Cell(rates=tuple(one.boundary for one in runs), unit=""),
        )
        rows.append((Cell(words=method), *cells, *more))
    columns = ("method", *head, "red and blue made green by the attack", "green begins at")
    panels = tuple(_regions(method, runs[0]) for method, runs in found.items())
    figure = Figure("points", "x", "y", panels=panels, unit="")
    return Artefact(options.file_name, options.title, columns, tuple(rows), _notes(options), figure)


def _regions(method: str, one: Trained) -> Figure:
    """Every place in the colour of the class that it is called, with seed 0."""
    series = []
    for k, name in enumerate(NAMES):
        here = [place for place, called in zip(places(), one.regions, strict=True) if called == k]
        x, y = zip(*here, strict=True) if here else ((), ())
        series.append(Series(f"called {name}", tuple(x), tuple(y)))
    return Figure("points", "x", "y", tuple(series), title=method, unit="")


@dataclass(frozen=True)
class Sentence:
    """A sentence of the caption, and by how much each seed speaks for it."""

    words: str
    measure: str
    by: Callable[[ByMethod, int], float]  # above 0: this seed agrees


def _over(one: str, other: str, value: Callable[[Trained], float]) -> Callable[..., float]:
    """By how much a method exceeds another, seed by seed."""
    return lambda found, seed: value(found[one][seed]) - value(found[other][seed])


def _hard(one: Trained) -> float:
    return fmean(one.robust[:GREEN])


def _gap(one: Trained) -> float:
    return max(one.robust) - min(one.robust)


def sentences(targeted: str = "targeted, C_FPS") -> tuple[Sentence, ...]:
    """What the caption says, as differences that would be above 0 if it were so here."""
    plain, attacked = "standard", "untargeted"
    return (
        Sentence(
            "Untargeted, no point of red or blue moves to green",
            "minus the share that does",
            lambda found, seed: -found[attacked][seed].to_green,
        ),
        Sentence(
            "Untargeted training pushes the boundary away from green",
            "where green begins: standard less untargeted",
            _over(plain, attacked, lambda one: one.boundary),
        ),
        Sentence(
            "… which makes green more robust",
            "green, robust: untargeted less standard",
            _over(attacked, plain, lambda one: one.robust[GREEN]),
        ),
        Sentence(
            "… and red and blue less",
            "mean of red and blue, robust: standard less untargeted",
            _over(plain, attacked, _hard),
        ),
        Sentence(
            "Targets by C_FPS leave red and blue more room",
            "where green begins: targeted less untargeted",
            _over(targeted, attacked, lambda one: one.boundary),
        ),
        Sentence(
            "… which is fairer: the worst class is more robust",
            "worst class, robust: targeted less untargeted",
            _over(targeted, attacked, lambda one: min(one.robust)),
        ),
        Sentence(
            "… and classes differ less",
            "best less worst class, robust: untargeted less targeted",
            _over(attacked, targeted, _gap),
        ),
    )


def _caption(options: ToyTargetsOptions, found: ByMethod) -> Artefact:
    rows = []
    for one in sentences():
        by = tuple(one.by(found, seed) for seed in range(options.seeds))
        number = Cell(rates=by, unit="")
        rows.append((Cell(words=one.words), Cell(words=one.measure), number, _verdict(by)))
    head = ("the caption", "measured as", "here, above 0 agrees", "shown")
    return Artefact(options.file_name, options.title, head, tuple(rows), _notes(options))


def _verdict(by: Sequence[float]) -> Cell:
    """All seeds of one mind, or undecided; exactly 0 is what "no point" asks for."""
    for_it = sum(value >= 0 for value in by)
    word = {len(by): "shown", 0: "not shown"}.get(for_it, "undecided")
    return Cell(words=f"{word} ({for_it} of {len(by)} seeds)")


def _notes(options: ToyTargetsOptions) -> tuple[str, ...]:
    where = ", ".join(f"{name} {centre}" for name, centre in zip(NAMES, CENTRES, strict=True))
    notes = (
        f"Normal classes of deviation {DEVIATION:g} around {where}; {options.images} points of "
        f"each to train on, 500 to test; Linf ball of radius {spell_eps(options.eps)}; robust is "
        f"PGD-20; {options.epochs} epochs, a network of 1251 weights; {options.seeds} seeds, each "
        "with training points, weights and draws of its own.",
        "The paper's figure 2 is a sketch without data; centres, radius and network are ours. It "
        "is trained anew when this is made, and the same at every scale of the study.",
        "“Green begins at” is a height on the line half way between red and blue: the lower, the "
        "further the boundary is from green's centre.",
        options.note,
    )
    return tuple(note for note in notes if note)
