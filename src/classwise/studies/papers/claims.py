"""What the papers claim: sentences in our own words, and every difference of their tables."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias, cast, get_args

from classwise.errors import ClasswiseError, unknown
from classwise.papers import PAPERS

Kind: TypeAlias = Literal["difference", "relative", "share", "order", "cell", "same", "number"]
Sign: TypeAlias = Literal["", "+", "-", "<", ">", "~"]
FILES = ("claims.csv", "differences.csv")
OWN = ("condition", "weights", "measure")  # keys of a term that are no axes of a study


@dataclass(frozen=True)
class Term:
    """Runs of a study by their labels, and what is read of them where the claim says otherwise."""

    labels: tuple[tuple[str, str], ...]
    condition: str = ""
    weights: str = ""
    measure: str = ""

    @classmethod
    def read(cls, text: str) -> Term:
        """Read `row=AT + CFA;data=cifar10;condition=clean`.

        >>> Term.read("recipe=at;eps=8/255;condition=clean").labels
        (('recipe', 'at'), ('eps', '8/255'))
        """
        pairs = []
        for part in text.split(";"):
            axis, _, value = part.strip().partition("=")
            if not (axis and value):
                raise ClasswiseError(f"cannot read {text!r}; write axis=value;axis=value")
            pairs.append((axis, value))
        own = {axis: value for axis, value in pairs if axis in OWN}
        return cls(tuple((a, v) for a, v in pairs if a not in OWN), **own)

    def __str__(self) -> str:
        return ", ".join(
            value if axis == "row" else f"{axis} {value}" for axis, value in self.labels
        )


Sum: TypeAlias = tuple[Term, ...]


@dataclass(frozen=True)
class Claim:
    """One claim: its words, the study that yields it, what is compared, and which way it goes.

    `left` and `right` are alternatives of sums of terms; the claim is about left less right, for
    every pair of alternatives. Numbers are in per cent or points.

    difference: left less right, or left alone. relative: (left − right)/right. share: of all pairs
    and conditions, how many have left over right. order: Spearman's ρ of left and right over the
    classes, or superclasses. cell: cells of artefacts, `measure` is ARTEFACT: COLUMN. same: another
    claim has the same content. number: of one network of the authors', to compare with nothing.
    """

    id: str
    paper: str
    section: str
    words: str
    studies: tuple[str, ...]  # the first that has the runs; none: not run
    kind: Kind
    measure: str
    condition: str
    weights: str
    left: tuple[Sum, ...]
    right: tuple[Sum, ...]
    value: float | None  # the paper's
    sign: Sign  # + or -: over or under 0; < or >: under or over the bound; ~: within ± the bound
    bound: float | None
    doubtful: str = ""  # why the paper's own number is not to be relied on
    other: str = ""  # of `same`: the id
    rows: tuple[str, ...] = ()  # of `cell`: patterns of the words that a row begins with
    less: str = ""  # of `cell`: the row that is taken off, if any

    def __post_init__(self) -> None:
        if self.paper not in PAPERS:
            raise unknown(f"paper of the claim {self.id}", self.paper, PAPERS)
        if self.kind not in get_args(Kind):
            raise unknown(f"kind of the claim {self.id}", self.kind, get_args(Kind))
        if self.sign not in get_args(Sign):
            raise unknown(f"sign of the claim {self.id}", self.sign, get_args(Sign))
        if (self.sign in ("<", ">", "~")) != (self.bound is not None):
            raise ClasswiseError(
                f"the claim {self.id}: a bound goes with <, > or ~, and only there"
            )
        if self.studies and self.kind not in ("same", "number") and not self.sign:
            raise ClasswiseError(f"the claim {self.id} does not say which way it goes")
        if (
            self.studies
            and self.kind in ("difference", "relative", "share", "order")
            and not self.left
        ):
            raise ClasswiseError(f"the claim {self.id} does not say which runs it is about")

    @property
    def from_table(self) -> bool:
        """Whether it is a difference of two cells, made by the rule of `differences.py`."""
        return self.section.startswith("table")


@cache
def claims() -> tuple[Claim, ...]:
    """All claims of the five papers, each under an id of its own.

    >>> len({claim.id for claim in claims()}) == len(claims())
    True
    """
    found = [
        read_claim(line)
        for name in FILES
        for line in csv.DictReader(
            files(__package__).joinpath(name).read_text(encoding="utf-8").splitlines()
        )
    ]
    order = list(PAPERS)
    return tuple(sorted(found, key=lambda claim: (order.index(claim.paper), claim.from_table)))


def read_claim(line: dict[str, str]) -> Claim:
    """Read one line of the files."""
    kind = cast(Kind, line["kind"])
    plain = kind in ("same", "cell")
    return Claim(
        id=line["id"],
        paper=line["paper"],
        section=line["section"],
        words=line["words"],
        studies=tuple(name.strip() for name in line["study"].split("|") if name.strip()),
        kind=kind,
        measure=line["measure"],
        condition=line["condition"],
        weights=line["weights"],
        left=() if plain else _alternatives(line["left"]),
        right=() if plain else _alternatives(line["right"]),
        value=float(line["value"]) if line["value"] else None,
        sign=cast(Sign, line["sign"]),
        bound=float(line["bound"]) if line["bound"] else None,
        doubtful=line["doubtful"],
        other=line["left"] if kind == "same" else "",
        rows=tuple(line["left"].split("|")) if kind == "cell" else (),
        less=line["right"] if kind == "cell" else "",
    )


def _alternatives(text: str) -> tuple[Sum, ...]:
    """Read `a & b | c`: the sum of a and b, or c."""
    return tuple(
        tuple(Term.read(term.strip()) for term in one.split("&"))
        for one in text.split("|")
        if one.strip()
    )
