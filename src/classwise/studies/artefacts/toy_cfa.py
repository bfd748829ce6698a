"""Kind `toy-cfa`: the binary task of CFA, drawn as its figure 1, or its theorems tried.

It needs no runs: all of it follows from closed forms.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from classwise.studies.artefact import Artefact, ArtefactOptions, Cell, Figure, Series
from classwise.studies.found import Found
from classwise.studies.toys.theorems import LARGEST_D, Tried, try_claims
from classwise.studies.toys.two_classes import NOBODY, Adversary, TwoClasses

NOT_STATED = (
    "The paper states d = 1 and p₊ > p₋ and no other parameter of its figure 1; these are ours, "
    "chosen so that both classes have an optimum in view."
)
SCALE = "Closed forms, without runs and seeds: the same at every scale of the study."
_SAMPLED = 200  # points of the picture


class ToyCfaOptions(ArtefactOptions):
    """Parameters of the task; the defaults are for demonstration."""

    kind: Literal["toy-cfa"] = "toy-cfa"
    shows: Literal["accuracies", "theorems"] = "accuracies"
    d: Annotated[int, Field(ge=1)] = 1
    eta: float = 0.4
    p_easy: float = 0.9
    p_hard: float = 0.7
    eps: Annotated[float, Field(ge=0, lt=1)] = 0.8  # of the robust accuracies
    moves_all: bool = False  # the adversary moves x_1, too: κ = ε
    widest: Annotated[float, Field(gt=0)] = 8.0  # largest w
    draws: Annotated[int, Field(ge=2)] = 1000  # parameters that theorems are tried on
    seed: Annotated[int, Field(ge=0)] = 0

    @property
    def toy(self) -> TwoClasses:
        """The task."""
        return TwoClasses(self.d, self.eta, self.p_easy, self.p_hard)

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        _ = self.toy
        if self.where:
            raise ValueError("toy-cfa reads no runs; leave `where` out")
        return self


def toy_cfa(_: Found, options: ToyCfaOptions) -> Artefact:
    """The figure, or the table of theorems."""
    return _theorems(options) if options.shows == "theorems" else _accuracies(options)


def _accuracies(options: ToyCfaOptions) -> Artefact:
    toy, adversary = options.toy, Adversary(options.eps, options.moves_all)
    weights = np.linspace(0, options.widest, 161)[1:]
    lines = [
        (f"{word}, class {name}", p, whom)
        for word, whom in (("robust", adversary), ("clean", NOBODY))
        for name, p in (("+1 (easy)", toy.p_easy), ("−1 (hard)", toy.p_hard))
    ]
    series = tuple(
        Series(
            name,
            tuple(weights.tolist()),
            tuple(toy.accuracy(weights, p, whom).tolist()),
            dashed=whom is NOBODY,
        )
        for name, p, whom in lines
    )
    optima = {
        "w*₋, best clean of the hard class": toy.best_clean(toy.p_hard),
        "w*₊, best clean of the easy class": toy.best_clean(toy.p_easy),
    }
    places = {f"w = {w:g}": w for w in (0.5, 1.0, 2.0, 4.0, 8.0)}
    rows = tuple(
        (
            Cell(words=f"{name} = {w:.3f}" if name in optima else name),
            *(Cell(rates=(float(toy.accuracy(w, p, whom)),)) for _, p, whom in lines),
        )
        for name, w in (optima | places).items()
    )
    notes = (_parameters(options), NOT_STATED, SCALE, options.note)
    panels = (
        _points(options),
        Figure("lines", "w", "class accuracy", series, title="(b) accuracies"),
    )
    return Artefact(
        options.file_name,
        options.title,
        ("w", *(name for name, _, _ in lines)),
        rows,
        tuple(note for note in notes if note),
        Figure("lines", "w", "class accuracy", panels=panels),
    )


def _points(options: ToyCfaOptions) -> Figure:
    points, labels = options.toy.draw(_SAMPLED, options.seed)
    series = tuple(
        Series(
            name,
            tuple(points[labels == sign, 0].tolist()),
            tuple(points[labels == sign, 1].tolist()),
        )
        for name, sign in (("y = +1", 1), ("y = −1", -1))
    )
    return Figure("points", "x₁", "x₂", series, title="(a) points", unit="")


def _theorems(options: ToyCfaOptions) -> Artefact:
    tried = try_claims(options.draws, options.seed)
    rows = tuple(
        (
            Cell(words=still.claim.name or "–"),
            Cell(words=still.claim.says),
            _verdict(still),
            _verdict(moved),
        )
        for still, moved in zip(tried[::2], tried[1::2], strict=True)
    )
    notes = (
        f"{options.draws} drawn parameters, seed {options.seed}: d from 1 to {LARGEST_D}, η from "
        "0.01 to 0.49, 0.5 ≤ p₋ < p₊ ≤ 0.99, uniform; half with ε < η, half with ε ≥ η. How many "
        "fail depends on how they are drawn; that some do, does not.",
        "κ is how far the adversary moves x₁. The paper's threat is κ = ε; its theorems 2 and 4 "
        "hold together only for κ = 0, theorem 2 for training with ε ≤ η and the gain of theorem 4 "
        "for an attack with ε ≥ η. At p₋ = 0.5 exactly, w*₋ is 0.",
        SCALE,
        options.note,
    )
    head = ("theorem", "claim", "κ = 0: x₁ stays", "κ = ε: all is moved")
    return Artefact(
        options.file_name, options.title, head, rows, tuple(note for note in notes if note)
    )


def _verdict(tried: Tried) -> Cell:
    return Cell(words=str(tried))


def _parameters(options: ToyCfaOptions) -> str:
    kappa = "ε" if options.moves_all else "0"
    return (
        f"d = {options.d}, η = {options.eta:g}, p₊ = {options.p_easy:g}, p₋ = {options.p_hard:g}; "
        f"robust: ε = {options.eps:g}, κ = {kappa}."
    )
