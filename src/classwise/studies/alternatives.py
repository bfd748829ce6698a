"""Which runs a claim means: every pair of its alternatives, and rows that may stand for others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

from classwise.studies.found import Found, Hole
from classwise.studies.papers.claims import Claim, Sum, Term

STAR = "*"
# A gate that waits for a worst class of 20 % may never open at a small scale; studies have such
# rows a second time with a gate that waits for a share of what can be had.
OTHER_GATE = " (gate: share)"


def has_star(claim: Claim) -> bool:
    """Whether some term means every value of an axis."""
    return any(value.startswith(STAR) for term in _terms(claim) for _, value in term.labels)


def pairs_of(claim: Claim, found: Found) -> list[tuple[Sum, Sum]]:
    """Every pair of alternatives, a `*` once for every value that the study has on that axis."""
    pairs = []
    for left, right in product(claim.left, claim.right or ((),)):
        stars = {
            axis: (value, term)
            for term in (*right, *left)  # of both, the left one says which values there are
            for axis, value in term.labels
            if value.startswith(STAR)
        }
        choices = [_values(axis, value, term, found) for axis, (value, term) in stars.items()]
        for values in product(*choices):
            chosen = dict(zip(stars, values, strict=True))
            pairs.append((_filled(left, chosen), _filled(right, chosen)))
    return pairs


def rows_for(left: Sum, right: Sum, found: Found) -> list[Sum]:
    """All terms of a pair, then the same with the rows of another gate, where the study has any."""
    terms = (*left, *right)
    known = found.values("row") if "row" in found.axes else ()

    def other(axis: str, value: str) -> str:
        return (
            f"{value}{OTHER_GATE}" if axis == "row" and f"{value}{OTHER_GATE}" in known else value
        )

    again = tuple(
        replace(term, labels=tuple((axis, other(axis, value)) for axis, value in term.labels))
        for term in terms
    )
    return [terms] if again == terms else [terms, again]


def _terms(claim: Claim) -> list[Term]:
    return [term for side in (*claim.left, *claim.right) for term in side]


def _values(axis: str, star: str, term: Term, found: Found) -> list[str]:
    """What a `*` stands for: all values of runs that fit otherwise, but those after a `!`."""
    fixed = {a: v for a, v in term.labels if not v.startswith(STAR)}
    values = dict.fromkeys(
        run.labels[axis]
        for run in found.runs
        if axis in run.labels and all(run.labels.get(a) == v for a, v in fixed.items())
    )
    but = star.removeprefix(STAR).split("!")
    kept = [value for value in values if value not in but]
    if not kept:
        raise Hole(f"the study has no {axis} for this")
    return kept


def _filled(terms: Sum, chosen: Mapping[str, str]) -> Sum:
    return tuple(
        replace(
            term,
            labels=tuple((a, chosen[a] if v.startswith(STAR) else v) for a, v in term.labels),
        )
        for term in terms
    )
