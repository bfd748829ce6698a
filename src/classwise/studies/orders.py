"""Runs of a study that differ in one axis: the order of their classes, seed by seed, and a rule."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from classwise.errors import ClasswiseError
from classwise.judging.agreement import agree_samples
from classwise.judging.asymmetry import Asymmetry
from classwise.judging.metrics import ConditionReport
from classwise.judging.samples import AuditedSamples
from classwise.judging.universal import SAME_FROM, Agreement, RunDetails, Verdict
from classwise.spelling import few_names
from classwise.statistics.paired import holm
from classwise.statistics.ranks import spearman
from classwise.studies.artefact import ArtefactOptions
from classwise.studies.cells import Setting
from classwise.studies.counted import equal_rates_p_value, samples_of
from classwise.studies.found import FoundRun, Hole
from classwise.studies.pairing import Predictions
from classwise.studies.readings import ConditionName, Read


class AgreementOptions(ArtefactOptions):
    """Rank agreement of class accuracies between runs that differ in one axis.

    Benz, sections 3.1 and 3.2: axis = "model", "optimiser", "schedule", "weight_decay" or "recipe"
    (standard against adversarial training). The rule is the paper's: the same order of classes
    clears the axis, another order makes it one possible cause. Over "data" there is no order to
    compare; whether classes differ at all is said of each.
    """

    kind: Literal["agreement"]
    axis: str
    along: tuple[str, ...] = ()  # axes that change with it, such as the radius with the data
    beside: str = ""  # a value of the axis: how far each of the others agrees with it
    conditions: tuple[ConditionName, ...] = Field(("clean", "pgd-20"), min_length=1)
    weights: str = "last"
    same_from: Annotated[float, Field(gt=-1, le=1)] = SAME_FROM  # the paper names no number
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    draws: Annotated[int, Field(ge=100, le=10_000)] = 500


@dataclass(frozen=True)
class Compared:
    """The runs of one setting under one condition, by seed and by value of the axis."""

    setting: Setting
    condition: str
    options: AgreementOptions
    predictions: Predictions
    runs: Mapping[str, Mapping[str, FoundRun]]  # seed -> value -> run
    reports: Mapping[str, Mapping[str, ConditionReport]]  # seed -> value -> report

    @classmethod
    def of(
        cls, setting: Setting, condition: str, options: AgreementOptions, predictions: Predictions
    ) -> Compared:
        """Read the audits; runs without one are left to their cells."""
        found: dict[str, dict[str, ConditionReport]] = {}
        runs: dict[str, dict[str, FoundRun]] = {}
        for run in setting.runs:
            try:
                report = run.report(condition, options.weights)
            except Hole:
                continue
            value = run.labels[options.axis]
            found.setdefault(run.seed, {})[value] = report
            runs.setdefault(run.seed, {})[value] = run
        return cls(setting, condition, options, predictions, runs, found)

    @cached_property
    def by_seed(self) -> dict[str, Agreement | Hole]:
        """How far the values of the axis agree, of every seed."""
        return {seed: self._agree(seed, reports) for seed, reports in self.reports.items()}

    def _samples(self, run: FoundRun, value: str, report: ConditionReport) -> AuditedSamples:
        """The verdicts of a run on the images that it was asked about; the attack is a name here.

        Radii may change along the axis, so that no two attacks would be the same.
        """
        label = self.condition
        try:
            audit = run.audit(self.options.weights)
            rows, stamp = self.predictions.rows(run, audit, report)
        except Hole:
            return samples_of(value, label, report)
        stamps = {label: replace(stamp, attack_key=label)}
        return AuditedSamples(value, "", "", report.class_names, {label: rows}, stamps)

    def _agree(self, seed: str, reports: Mapping[str, ConditionReport]) -> Agreement | Hole:
        values = tuple(reports)
        if len(values) < 2:
            return Hole(f"one value of {self.options.axis} alone was audited")
        names = {report.class_names for report in reports.values()}
        if len(names) > 1:
            return Hole(f"the classes differ with {self.options.axis}: no order to compare")
        samples = [
            self._samples(self.runs[seed][value], value, report)
            for value, report in reports.items()
        ]
        label, level, draws = self.condition, self.options.level, self.options.draws
        try:
            ranks = agree_samples(samples, label, level=level, draws=draws)
        except ClasswiseError as reason:  # too few classes with images
            return Hole(str(reason))
        details = [
            RunDetails(value, self.options.weights, _confused(report), None, None)
            for value, report in reports.items()
        ]
        return Agreement(
            replace(ranks, runs=values),
            tuple(details),
            {self.options.axis: values},
            self.options.same_from,
        )

    def lowest(self, seed: str, value: str = "") -> float:
        """The lowest ρ of a value with another, or of all pairs."""
        found = self.by_seed.get(seed, Hole("not audited"))
        if isinstance(found, Hole):
            raise found
        pairs = [
            pair.value
            for pair in found.ranks.pairs
            if not value or value in (found.ranks.runs[pair.first], found.ranks.runs[pair.second])
        ]
        if not pairs or np.isnan(pairs).any():
            raise Hole("all classes of a run are equal, which is no order")
        return min(pairs)

    def with_one(self, seed: str, value: str) -> Read:
        """ρ of a value with the one that the others stand beside, and its interval over images."""
        found = self.by_seed.get(seed, Hole("not audited"))
        if isinstance(found, Hole):
            raise found
        for pair in found.ranks.pairs:
            names = {found.ranks.runs[pair.first], found.ranks.runs[pair.second]}
            if names == {value, self.options.beside}:
                if np.isnan(pair.value):
                    raise Hole("all classes of a run are equal, which is no order")
                return Read(pair.value, interval=(pair.low, pair.high))
        raise Hole(f"{self.options.beside} was not audited")

    def lowest_or_none(self, seed: str) -> float | None:
        """The lowest ρ of all pairs; None where there is none."""
        try:
            return self.lowest(seed)
        except Hole:
            return None

    def between_seeds(self, value: str) -> float:
        """Mean ρ of the runs with this value that differ in their seed alone."""
        rates = [by[value].rates for by in self.reports.values() if value in by]
        if len(rates) < 2:
            raise Hole("one seed alone")
        if len({len(one) for one in rates}) > 1 or len(rates[0]) < 3:
            raise Hole("no order to compare")
        table = np.array(rates)[:, ~np.isnan(rates).any(0)]
        found = float(spearman(table)[np.triu_indices(len(table), 1)].mean())
        if np.isnan(found):
            raise Hole("all classes of a run are equal, which is no order")
        return found

    @property
    def verdict(self) -> str:
        """The paper's rule, over all seeds, beside what seeds alone do."""
        known = [one for one in self.by_seed.values() if isinstance(one, Agreement)]
        if not known:
            reasons = [str(one) for one in self.by_seed.values()]
            why = few_names(list(dict.fromkeys(reasons))) or "nothing was audited"
            return f"Undecided: {why}.{self._unequal}"
        verdicts = [one.verdict for one in known]
        deciding = min(verdicts, key=_strictness)
        words = deciding.words
        if len(verdicts) > 1:
            same, other = (sum(one.same is what for one in verdicts) for what in (True, False))
            words += f" Of {len(verdicts)} seeds {same} say the same order, {other} another one."
        return self._against_seeds(deciding) + words + self._unequal

    @property
    def _unequal(self) -> str:
        """At how many values of the axis classes differ at all, of the first seed that has them."""
        found: dict[str, ConditionReport] = {}
        for by in self.reports.values():
            found = {**by, **found}
        if not found:
            return ""
        sure = holm([equal_rates_p_value(one) for one in found.values()]) <= 1 - self.options.level
        return f" Classes differ beyond chance in {int(sure.sum())} of {len(found)}."

    def _against_seeds(self, verdict: Verdict) -> str:
        """What another order means where seeds alone make another order as well."""
        values = dict.fromkeys(value for by in self.reports.values() for value in by)
        alone = list[float]()
        for value in values:
            with suppress(Hole):
                alone.append(self.between_seeds(value))
        lowest = [rho for seed in self.by_seed if (rho := self.lowest_or_none(seed)) is not None]
        if verdict.same is not False or not alone or min(alone) > min(lowest):
            return ""
        return (
            f"Undecided, since runs that differ in their seed alone agree no better "
            f"(ρ = {min(alone):.2f}). Else: "
        )


def _confused(report: ConditionReport) -> Asymmetry:
    return Asymmetry(report.class_names, report.confusion)


def _strictness(verdict: Verdict) -> int:
    """Another order counts before an undecided one, and that before the same."""
    return {False: 0, None: 1, True: 2}[verdict.same]
