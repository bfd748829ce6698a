"""What is read of one run: a measure of its classes, or one class, under a condition."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import AfterValidator

from classwise.attacks.names import named_condition
from classwise.errors import unknown
from classwise.judging.corrupted import CorruptionReport, corruption_report
from classwise.judging.metrics import ConditionReport
from classwise.report.summary import MEASURES, TAIL_SHARE, measured
from classwise.statistics.intervals import wilson
from classwise.studies.found import FoundRun, Hole

# What can be said of the classes under one condition.
SAID = {**MEASURES, "gap": "Best minus worst class", "error": "Error"}
CORRUPTIONS = "corruptions"  # the mean over all that were audited
REAL = "real"  # clean images by their reassessed labels


class Read(NamedTuple):
    """One number of one run, the classes to name beside it, and its interval over images."""

    rate: float
    classes: tuple[str, ...] = ()
    interval: tuple[float, float] | None = None


def _known_measure(name: str) -> str:
    if name not in SAID:
        raise unknown("measure", name, SAID)
    return name


def _known_condition(text: str) -> str:
    return text if text in (CORRUPTIONS, REAL) else named_condition(text)[0]


# What a study file writes: refused where it is read, not when all has run.
Measure = Annotated[str, AfterValidator(_known_measure)]
ConditionName = Annotated[str, AfterValidator(_known_condition)]


def read_run(run: FoundRun, measure: str, condition: str, weights: str = "last") -> Read:
    """A measure of a run under a condition; `corruptions` and `real` are conditions here, too."""
    if condition == CORRUPTIONS:
        if measure not in ("error", "average"):
            raise Hole(f"a mean over corruptions has no {measure}; see the table of corruptions")
        error = corruptions_of(run, weights).error
        return Read(error if measure == "error" else 1 - error)
    return read_measure(report_of(run, condition, weights), measure)


def report_of(run: FoundRun, condition: str, weights: str = "last") -> ConditionReport:
    """The report under a condition, or on clean images by their reassessed labels (`real`)."""
    if condition != REAL:
        return run.report(condition, weights)
    again = run.audit(weights).report.relabelled
    if again is None or "clean" not in again:
        raise Hole("no reassessed labels")
    return again["clean"]


def read_measure(report: ConditionReport, measure: str) -> Read:
    """A measure of a report, with the classes to name beside it and the interval over images."""
    if measure == "gap":
        return Read(report.gap)
    rate, names = measured(report, "average" if measure == "error" else measure)
    if rate is None:
        raise Hole(f"{len(report.class_names)} classes: the worst {TAIL_SHARE:.0%} is of more")
    if measure == "worst":
        return Read(rate, names, report.worst_interval)
    if measure in ("average", "error"):
        size = int(report.counts.sizes.sum())
        low, high = (float(end) for end in wilson(rate * size, size, report.level))
        right = Read(rate, (), (low, high))
        return right if measure == "average" else Read(1 - rate, (), (1 - high, 1 - low))
    return Read(rate, tuple(names) if measure == "best" else ())


def read_class(report: ConditionReport, name: str) -> Read:
    """The accuracy of one class, with its interval over images."""
    if name not in report.class_names:
        raise Hole(f"no class {name}")
    rate = report.by_class[name]
    if rate is None:
        raise Hole(f"no images of {name}")
    return Read(rate, (), report.intervals[name])


def corruptions_of(run: FoundRun, weights: str = "last") -> CorruptionReport:
    """All corruptions of a run, severities pooled."""
    found = corruption_report(run.audit(weights).report)
    if found is None:
        raise Hole("no corruption was audited")
    return found
