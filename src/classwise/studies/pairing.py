"""Verdicts on single images, of several networks on the same ones: what an effect is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from classwise.judging.audits import AuditedWeights
from classwise.judging.metrics import ConditionReport
from classwise.judging.samples import AuditedSamples, read_samples
from classwise.record.rows import Predictions as Rows
from classwise.record.rows import Stamp
from classwise.report.summary import TAIL_SHARE
from classwise.spelling import conditions_meant, few_names
from classwise.statistics import effects
from classwise.statistics.intervals import Rates
from classwise.statistics.redrawn import Whole
from classwise.studies.beside import audit_of, parts_of, weights_for
from classwise.studies.found import Found, FoundRun, Hole
from classwise.studies.papers.claims import Term

OF_A_CLASS = "class:"
BY_CLASS, BY_SUPERCLASS = "classes", "superclasses"  # whose order is compared


class Asked(NamedTuple):
    """One side of a comparison: runs of a study, and what is read of them."""

    labels: tuple[tuple[str, str], ...]
    condition: str
    weights: str
    measure: str

    @classmethod
    def of(cls, term: Term, condition: str, weights: str, measure: str) -> Asked:
        """A term of a claim, with what the claim says of all its terms."""
        return cls(
            term.labels,
            term.condition or condition,
            weights_for(term.weights or weights),
            term.measure or measure,
        )


class Judged(NamedTuple):
    """What a network was right about under one condition."""

    sample: Whole
    label: Whole
    right: npt.NDArray[np.bool_]
    data_hash: str


class Parts(NamedTuple):
    """Verdicts of one network under the conditions that one answer is made of."""

    names: tuple[str, ...]  # of the conditions
    radii: frozenset[float]
    class_names: tuple[str, ...]
    superclass_of: tuple[int, ...]  # empty where there are none
    judged: tuple[Judged, ...]


@dataclass(frozen=True)
class Paired:
    """Verdicts of all sides of a comparison, with the same seeds and images."""

    seeds: tuple[str, ...]
    labels: Whole
    class_names: tuple[str, ...]
    superclass_of: tuple[int, ...]
    right: npt.NDArray[np.bool_]  # seeds × rows × images; a side has one row per part
    parts: tuple[int, ...]  # rows of each side
    conditions: tuple[str, ...]  # that were really read
    left_out: tuple[str, ...]  # seeds that some side lacks

    def measure(self, name: str) -> effects.Measure:
        """A figure of class accuracies by its name."""
        sizes = np.bincount(self.labels, minlength=len(self.class_names))
        if name.startswith(OF_A_CLASS):
            wanted = name.removeprefix(OF_A_CLASS)
            if wanted not in self.class_names:
                raise Hole(f"no class {wanted}")
            return effects.one_class(self.class_names.index(wanted))
        overall = effects.average(sizes)
        known: dict[str, effects.Measure] = {
            "average": overall,
            "error": lambda rates: 1 - overall(rates),
            "worst": effects.worst,
            "best": effects.best,
            "spread": effects.spread,
            "gap": lambda rates: effects.best(rates) - effects.worst(rates),
            "tail": lambda rates: effects.tail(rates, TAIL_SHARE),
        }
        if name not in known:
            raise Hole(f"no measure {name}")
        return known[name]

    def sides(self, measures: Sequence[str]) -> list[effects.Of]:
        """The figure of each side, its parts pooled."""
        ends = np.cumsum(self.parts)
        return [
            _of_rows(int(end - count), int(end), self.measure(name))
            for end, count, name in zip(ends, self.parts, measures, strict=True)
        ]

    def groups(self, name: str) -> list[effects.PerGroup]:
        """The accuracies of each side, by class or by superclass, its parts pooled."""
        if name not in (BY_CLASS, BY_SUPERCLASS):
            raise Hole(f"an order is of {BY_CLASS} or {BY_SUPERCLASS}, not of {name}")
        if name == BY_SUPERCLASS and not self.superclass_of:
            raise Hole("these data have no superclasses")
        sizes = np.bincount(self.labels, minlength=len(self.class_names))
        number = np.arange(len(sizes)) if name == BY_CLASS else np.array(self.superclass_of)
        member = np.equal.outer(number, np.unique(number[sizes > 0])) & (sizes > 0)[:, None]
        share = member / member.sum(0)
        ends = np.cumsum(self.parts)
        return [
            _grouped(int(end - count), int(end), share)
            for end, count in zip(ends, self.parts, strict=True)
        ]


def _grouped(begin: int, end: int, share: Rates) -> effects.PerGroup:
    return lambda rates: np.nan_to_num(rates[..., begin:end, :].mean(-2)) @ share


def _of_rows(begin: int, end: int, measure: effects.Measure) -> effects.Of:
    return lambda rates: measure(rates[..., begin:end, :].mean(-2))


@dataclass(frozen=True)
class Predictions:
    """Reads predictions of run folders, each once."""

    _read: dict[tuple[Path, str, str], AuditedSamples] = field(default_factory=dict, repr=False)

    def paired(self, found: Found, asked: Sequence[Asked]) -> Paired:
        """All sides on the seeds and images that they share; a `Hole` says what is missing."""
        sides = [_runs(found, one) for one in asked]
        every = list(dict.fromkeys(seed for side in sides for seed in side))
        by_seed: dict[str, list[Parts]] = {}
        reasons = []
        for seed in every:
            try:
                by_seed[seed] = [
                    self._parts(_of_seed(side, seed), one)
                    for side, one in zip(sides, asked, strict=True)
                ]
            except Hole as reason:
                reasons.append(str(reason))
        if not by_seed:
            raise Hole(few_names(list(dict.fromkeys(reasons))))
        return _together(by_seed, tuple(seed for seed in every if seed not in by_seed))

    def _parts(self, run: FoundRun, asked: Asked) -> Parts:
        audit = audit_of(run, asked.weights)
        reports = parts_of(run, asked.condition, asked.weights)
        attacked = [one.eps or 0.0 for one in reports if one.kind not in ("clean", "shift")]
        return Parts(
            tuple(one.condition for one in reports),
            frozenset(round(radius, 9) for radius in attacked),
            reports[0].class_names,
            reports[0].superclass_of or (),
            tuple(self._judged(run, audit, one) for one in reports),
        )

    def _judged(self, run: FoundRun, audit: AuditedWeights, report: ConditionReport) -> Judged:
        rows, stamp = self.rows(run, audit, report)
        return Judged(rows.sample, rows.label, rows.correct, stamp.data_hash)

    def rows(
        self, run: FoundRun, audit: AuditedWeights, report: ConditionReport
    ) -> tuple[Rows, Stamp]:
        """The verdicts that a report was made of, image by image, and whose they are."""
        folder = run.record().folder
        if folder is None:
            raise Hole("no predictions image by image")
        place = (folder, audit.weights, audit.split)
        if place not in self._read:
            self._read[place] = read_samples(folder, weights=audit.weights, split=audit.split)
        samples, radius = self._read[place], report.eps or 0.0
        for label in conditions_meant(report.condition, samples.conditions):
            one = samples.conditions[label]
            if math.isclose(float(one.radius.max(initial=0)), radius, rel_tol=1e-6):
                return one, samples.stamps[label]
        raise Hole(f"no predictions under {report.condition} image by image")


def _runs(found: Found, asked: Asked) -> dict[str, FoundRun]:
    """The runs that are meant, by their seeds."""
    labels = dict(asked.labels)
    for axis, value in labels.items():
        if axis not in found.axes or value not in found.values(axis):
            raise Hole(f"the study has no {axis} {value}")
    fitting = found.only(labels).runs
    if not fitting:
        words = ", ".join(f"{axis} {value}" for axis, value in labels.items())
        raise Hole(f"the study has no run with {words}")
    seeds: dict[str, FoundRun] = {}
    for run in fitting:
        if run.seed in seeds:
            first = dict(seeds[run.seed].setting)
            axes = [axis for axis, value in run.setting if first.get(axis) != value]
            raise Hole(f"several runs fit, which differ in {few_names(axes) or 'nothing'}")
        seeds[run.seed] = run
    return seeds


def _of_seed(side: Mapping[str, FoundRun], seed: str) -> FoundRun:
    if seed not in side:
        raise Hole(f"no seed {seed} on one side")
    return side[seed]


def _together(by_seed: Mapping[str, Sequence[Parts]], left_out: tuple[str, ...]) -> Paired:
    """Put the verdicts of all networks side by side on the images that all were asked about."""
    first = next(iter(by_seed.values()))
    every = [part for sides in by_seed.values() for part in sides]
    judged = [one for part in every for one in part.judged]
    if any(tuple(len(p.judged) for p in sides) != _counts(first) for sides in by_seed.values()):
        raise Hole("seeds were audited under different conditions")
    if len({part.class_names for part in every}) > 1 or len({one.data_hash for one in judged}) > 1:
        raise Hole("audited on different data: the images are not the same")
    radii = {radius for part in every for radius in part.radii}
    if len(radii) > 1:
        raise Hole(f"audited at different radii: {few_names([f'{r:.4g}' for r in sorted(radii)])}")
    shared = reduce(np.intersect1d, (one.sample for one in judged))
    if not len(shared):
        raise Hole("the audits share no image")
    rows = [_on(one, shared) for one in judged]
    labels = rows[0][0]
    if any(not np.array_equal(own, labels) for own, _ in rows):
        raise Hole("the same images have other labels: not the same data")
    right = np.stack([verdicts for _, verdicts in rows])
    names = dict.fromkeys(name for part in every for name in part.names)
    return Paired(
        tuple(by_seed),
        labels,
        first[0].class_names,
        first[0].superclass_of,
        right.reshape(len(by_seed), -1, len(shared)),
        _counts(first),
        tuple(names),
        left_out,
    )


def _counts(sides: Sequence[Parts]) -> tuple[int, ...]:
    return tuple(len(side.judged) for side in sides)


def _on(judged: Judged, shared: Whole) -> tuple[Whole, npt.NDArray[np.bool_]]:
    """Labels and verdicts on some images, in their order."""
    order = np.argsort(judged.sample)
    at = order[np.searchsorted(judged.sample, shared, sorter=order)]
    return judged.label[at], judged.right[at]
