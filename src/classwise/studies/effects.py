"""The papers' claims against what our runs show: a verdict for each, with its interval.

A verdict speaks of the direction of an effect at a scale, never of equal numbers. How the interval
is made, and how often it holds the truth: `docs/effects.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product

from classwise.errors import ClasswiseError
from classwise.spelling import few_names
from classwise.statistics.effects import (
    DRAWS,
    difference,
    paired_effects,
    relative,
    same_order,
    share_over,
)
from classwise.studies.alternatives import has_star, pairs_of, rows_for
from classwise.studies.artefact import Artefact
from classwise.studies.beside import EACH, conditions_for, corruption_types
from classwise.studies.found import NOT_RUN, Found, Hole
from classwise.studies.pairing import Asked, Paired, Predictions
from classwise.studies.papers.claims import Claim, Sum, claims
from classwise.studies.printed import Printed, printed_cells

LEVEL = 0.95
SHARE_DRAWS = 200  # of a share over many conditions, each with several severities


class Verdict(StrEnum):
    """What our runs say of a claim."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNDECIDED = "undecided"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Finding:
    """One number that bears on a claim, in the unit of the claim (points, per cent)."""

    words: str  # which of several pairs, if there are several
    value: float
    low: float
    high: float
    seeds: int  # 0 where chance has no part in it
    images: int
    conditions: tuple[str, ...] = ()
    left_out: int = 0  # seeds that one side lacks

    def verdict(self, claim: Claim) -> Verdict:
        """Whether the whole interval is where the claim says, or where it says not."""
        bound = claim.bound or 0.0
        if claim.sign == "~":
            if self.low > bound or self.high < -bound:
                return Verdict.DISAGREES
            return Verdict.AGREES if -bound <= self.low <= self.high <= bound else Verdict.UNDECIDED
        above = claim.sign in ("+", ">")
        if self.low > bound:
            return Verdict.AGREES if above else Verdict.DISAGREES
        if self.high < bound:
            return Verdict.DISAGREES if above else Verdict.AGREES
        return Verdict.UNDECIDED


@dataclass(frozen=True)
class Judged:
    """A claim and what our runs say of it."""

    claim: Claim
    verdict: Verdict
    why: str = ""  # of what was not run, or could not be decided
    findings: tuple[Finding, ...] = ()
    study: str = ""
    scale: str = ""
    of: str = ""  # the id of the claim with the same content

    @property
    def shown(self) -> Finding | None:
        """The number beside the paper's: of several, the one that speaks most against the claim."""
        against = [one for one in self.findings if one.verdict(self.claim) == Verdict.DISAGREES]
        open_ = [one for one in self.findings if one.verdict(self.claim) == Verdict.UNDECIDED]
        rest = against or open_ or list(self.findings)
        if not rest:
            return None
        if self.claim.sign == "~":
            return max(rest, key=lambda one: abs(one.value))
        sign = 1 if self.claim.sign in ("+", ">") else -1
        return min(rest, key=lambda one: sign * one.value)


@dataclass(frozen=True)
class Bench:
    """All that claims are judged by: what studies found, and the artefacts made of it."""

    found: Mapping[str, Found]
    made: Mapping[str, Sequence[Artefact]] = field(default_factory=dict)
    predictions: Predictions = field(default_factory=Predictions)


def judge_claims(
    found: Mapping[str, Found],
    made: Mapping[str, Sequence[Artefact]] | None = None,
    wanted: Sequence[Claim] | None = None,
) -> list[Judged]:
    """Judge all claims by what studies found, each by its name, and by their artefacts."""
    bench = Bench(found, made or {})
    every = claims() if wanted is None else tuple(wanted)
    first = {claim.id: judge(claim, bench) for claim in every if claim.kind != "same"}
    judged = []
    for claim in every:
        if claim.kind != "same":
            judged.append(first[claim.id])
            continue
        other = first.get(claim.other)
        if other is None:
            raise ClasswiseError(f"the claim {claim.id} is the same as {claim.other!r}: no claim")
        judged.append(
            Judged(
                claim,
                other.verdict,
                other.why,
                other.findings,
                other.study,
                other.scale,
                claim.other,
            )
        )
    return judged


def judge(claim: Claim, bench: Bench) -> Judged:
    """Judge one claim by the first of its studies that has the runs."""
    if not claim.studies:
        return Judged(claim, Verdict.NOT_RUN, "no study")
    if claim.kind == "number":
        return Judged(claim, Verdict.NOT_RUN, "a number of one network, to compare with nothing")
    reasons = []
    for study in claim.studies:
        found = bench.found.get(study)
        try:
            if found is None:
                raise Hole(f"{NOT_RUN} ({study})")
            findings, missing = _findings(claim, found, bench, study)
        except (Hole, ClasswiseError) as reason:
            reasons.append(str(reason))
            continue
        return _judged(claim, findings, missing, study, found.scale)
    return Judged(claim, Verdict.NOT_RUN, few_names(list(dict.fromkeys(reasons))))


def _judged(
    claim: Claim, findings: Sequence[Finding], missing: str, study: str, scale: str
) -> Judged:
    """All findings must agree; one that disagrees is enough against the claim."""
    verdicts = [one.verdict(claim) for one in findings]
    verdict, why = Verdict.UNDECIDED, missing
    if Verdict.DISAGREES in verdicts:
        verdict = Verdict.DISAGREES
    elif all(one == Verdict.AGREES for one in verdicts):
        verdict = Verdict.AGREES
    if min(one.seeds for one in findings) == 1:
        verdict, why = Verdict.UNDECIDED, "; ".join(word for word in ("one seed", missing) if word)
    return Judged(claim, verdict, why, tuple(findings), study, scale)


def _findings(claim: Claim, found: Found, bench: Bench, study: str) -> tuple[list[Finding], str]:
    """All numbers that bear on a claim, and what is said of those that a `*` means but lacks."""
    if claim.kind == "cell":
        return [_from_cell(one) for one in printed_cells(claim, bench.made.get(study, ()))], ""
    pairs, made, holes = pairs_of(claim, found), [], []
    level = 1 - (1 - LEVEL) / len(pairs)
    for left, right in pairs:
        try:
            made.append(_finding(claim, left, right, found, bench, level))
        except Hole as reason:
            holes.append(str(reason))
    if holes and (not made or not has_star(claim)):
        raise Hole(holes[0])
    return made, f"{len(holes)} of {len(pairs)} are missing: {holes[0]}" if holes else ""


def _from_cell(one: Printed) -> Finding:
    return Finding(one.words, one.value, one.low, one.high, one.seeds, 0)


def _finding(
    claim: Claim, left: Sum, right: Sum, found: Found, bench: Bench, level: float
) -> Finding:
    paired, measures, words = _read(claim, left, right, found, bench)
    number, scale, draws = len(left), 100.0, DRAWS
    if claim.kind == "order":
        figure, scale = same_order(*paired.groups(claim.measure)), 1.0
    elif claim.kind == "relative":
        figure = relative(*paired.sides(measures))
    elif claim.kind == "share":
        sides, draws = paired.sides(measures), SHARE_DRAWS
        figure = share_over(sides[::2], sides[1::2])
    else:
        sides = paired.sides(measures)
        figure = difference(sides[:number], sides[number:])
    classes = len(paired.class_names)
    [effect] = paired_effects(
        paired.labels, paired.right, [figure], classes, level=level, draws=draws
    )
    value, low, high = (scale * one for one in (effect.value, effect.low, effect.high))
    many = effect.seeds, effect.images
    return Finding(words, value, low, high, *many, paired.conditions, len(paired.left_out))


def _read(
    claim: Claim, left: Sum, right: Sum, found: Found, bench: Bench
) -> tuple[Paired, list[str], str]:
    """The verdicts on all terms, under what was audited in most seeds and images.

    Between what is equal in this, the paper's own rows and condition are taken, then the nearest.
    """
    tried, reasons = [], []
    ways = product(rows_for(left, right, found), conditions_for(claim.paper, claim.condition))
    for terms, condition in ways:
        asked = [Asked.of(term, condition, claim.weights, claim.measure) for term in terms]
        try:
            if claim.kind == "share":
                types = _shared_types(found, asked)
                asked = [one._replace(condition=name) for name in types for one in asked]
            paired = bench.predictions.paired(found, asked)
        except Hole as reason:
            reasons.append(str(reason))
            continue
        words = " and ".join(str(term) for term in terms[: len(left)])
        tried.append((paired, [one.measure for one in asked], words))
    if not tried:
        raise Hole(reasons[0])
    return max(tried, key=lambda one: (len(one[0].seeds), len(one[0].labels)))


def _shared_types(found: Found, asked: Sequence[Asked]) -> tuple[str, ...]:
    """The corruptions that all runs of all terms were audited under."""
    if any(one.condition != EACH for one in asked):
        raise Hole(f"a share is over {EACH}")
    lists = [
        corruption_types(run, one.weights)
        for one in asked
        for run in found.runs
        if run.run is not None and all(run.labels.get(a) == v for a, v in one.labels)
    ]
    shared = [name for name in (lists[0] if lists else ()) if all(name in one for one in lists)]
    if not shared:
        raise Hole("no corruption was audited on both sides")
    return tuple(shared)
