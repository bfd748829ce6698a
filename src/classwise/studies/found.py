"""What artefacts read: the runs of a study where they stand on its axes, holes among them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol

from classwise.errors import ClasswiseError, unknown
from classwise.judging.audits import AuditedWeights
from classwise.judging.metrics import ConditionReport
from classwise.recipe_text import parse_recipe
from classwise.report.runs import ReportRun
from classwise.spelling import average_and_keep, conditions_meant, few_names

SEED = "seed"
NOT_RUN = "not run yet"
AVERAGED = "averaged"  # `averaged-last`: the average of a run that has one, as the papers report


class Hole(Exception):
    """There is no number here; the words say why."""


class StudyFacts(Protocol):
    """What an artefact knows of its study; `Study` itself reads artefacts, so it comes later."""

    @property
    def title(self) -> str:
        """What the study is called."""

    @property
    def paper(self) -> str:
        """The key of its paper."""

    @property
    def source(self) -> str:
        """Which table or figure of the paper."""


@dataclass(frozen=True)
class FoundRun:
    """One run of a study: where it stands on the axes, and its record or why there is none."""

    labels: Mapping[str, str]  # as the file writes them: row, recipe, eps, data, model, seed, ...
    run: ReportRun | None = None  # None: a hole
    why: str = ""  # of a hole
    stand_ins: Mapping[str, str] = field(
        default_factory=dict
    )  # attack of the file -> at this scale

    @property
    def seed(self) -> str:
        """Its seed, as written."""
        return self.labels.get(SEED, "0")

    @property
    def setting(self) -> tuple[tuple[str, str], ...]:
        """All labels but the seed: runs that are alike in it differ by chance alone."""
        return tuple((axis, value) for axis, value in self.labels.items() if axis != SEED)

    def record(self) -> ReportRun:
        """The record of the run, or the reason why there is none."""
        if self.run is None:
            raise Hole(self.why or NOT_RUN)
        return self.run

    def audit(self, weights: str = "last", split: str = "test") -> AuditedWeights:
        """What was found with some of its weights on a split.

        `averaged-last` are those of its average, and of a recipe without one the trained weights,
        `last`; an average that never began is a hole.
        """
        there = {one.weights: one for one in self.record().audits if one.split == split}
        average, keep = average_and_keep(weights)
        if average == AVERAGED:
            averages = [name for name in there if name.endswith(f"-{keep}")]
            if len(averages) > 1:
                raise Hole(f"several averages were audited: {few_names(averages)}; name one")
            if not averages and _averages(self.labels.get("recipe", "")):
                raise Hole("its average never began, or was not audited")
            weights = averages[0] if averages else keep
        if weights not in there:
            known = few_names(sorted(there), 5) or "nothing"
            raise Hole(f"weights {weights} not audited on {split} (there: {known})")
        return there[weights]

    def report(self, condition: str, weights: str = "last", split: str = "test") -> ConditionReport:
        """Class by class results under a condition, such as `clean` or `pgd-20`.

        Where another attack stands for it at this scale, the report says which.
        """
        found = self.audit(weights, split).report
        condition = self.stand_ins.get(condition, condition)
        meant = conditions_meant(condition, found)
        if not meant:
            raise Hole(f"{condition} not audited (there: {few_names(list(found), 5)})")
        if len(meant) > 1:
            raise Hole(f"{condition} was audited in {len(meant)} ways: {few_names(meant)}")
        if found[meant[0]].unfinished:
            raise Hole(f"{condition} audited in part: {found[meant[0]].unfinished}")
        return found[meant[0]]


@dataclass(frozen=True)
class FoundNetwork(FoundRun):
    """A network of other people beside the runs of a study: audited as they are, never trained."""

    about: Mapping[str, Any] = field(default_factory=dict)  # its name, file, and how it was opened

    def audit(self, weights: str = "last", split: str = "test") -> AuditedWeights:  # noqa: ARG002
        """What was found on a split; a file has one set of weights, whichever are asked for."""
        there = [one for one in self.record().audits if one.split == split]
        if len(there) != 1:
            raise Hole(f"{len(there)} audits on {split}" if there else f"not audited on {split}")
        return there[0]

    @property
    def words(self) -> str:
        """Whose it is and what was opened, for people."""
        told = self.about
        file = f"{told['file']}@{told['which']}" if told["which"] else str(told["file"])
        parts = [f"{file}, SHA-256 {told['sha256']}"]
        parts += [f"as {told['arch']}"] if told["arch"] else []
        parts += [f"renamed {few_names(told['rename'])}"] if told["rename"] else []
        return ", ".join([*parts, str(told["normalised"]), f"audited on {told['data']}"])


@dataclass(frozen=True)
class Found:
    """The runs of a study at one scale."""

    study: StudyFacts
    scale: str  # smoke, minutes, hours or paper
    runs: tuple[FoundRun, ...]
    scale_words: str = ""  # what the scale means for these runs, such as images, size and epochs
    theirs: tuple[FoundNetwork, ...] = ()  # for kinds of artefacts that show them, and no other

    @property
    def axes(self) -> tuple[str, ...]:
        """All labels that some run has."""
        return tuple(dict.fromkeys(axis for one in self.runs for axis in one.labels))

    def stand_in(self, condition: str) -> str:
        """What a condition of the file is at this scale."""
        found = (run.stand_ins[condition] for run in self.runs if condition in run.stand_ins)
        return next(found, condition)

    def where(self, **labels: str) -> tuple[FoundRun, ...]:
        """The runs with these labels; an axis that no run has is refused."""
        return self.only(labels).runs

    def values(self, axis: str) -> tuple[str, ...]:
        """All values of an axis, in the order of the file."""
        if axis not in self.axes:
            raise unknown("axis", axis, self.axes)
        return tuple(dict.fromkeys(one.labels[axis] for one in self.runs if axis in one.labels))

    def only(self, labels: Mapping[str, str | tuple[str, ...]]) -> Found:
        """The same study with the runs that have one of the values on each of these axes.

        `PGD + CFA*` is every value that begins so; there are more of them at some scales.
        """
        runs = self.runs
        for axis, value in labels.items():
            known = self.values(axis)
            wanted = (value,) if isinstance(value, str) else value
            for one in wanted:
                if not any(like(value, one) for value in known):
                    raise unknown(f"{axis} of the study's runs", one, known)
            runs = tuple(
                run
                for run in runs
                if axis in run.labels and any(like(run.labels[axis], one) for one in wanted)
            )
        return replace(self, runs=runs)


def like(value: str, pattern: str) -> bool:
    """Whether a value is the one that is named, or one of those where a `*` stands for anything.

    >>> like("AT + EMA", "AT + EMA"), like("AT + EMA", "* + EMA"), like("AT", "AT*[x]")
    (True, True, False)
    """
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), value) is not None


@cache
def _averages(recipe: str) -> bool:
    """Whether a recipe averages weights."""
    try:
        return bool(recipe and parse_recipe(recipe).slots.averages)
    except ClasswiseError:  # with a method that is not built in: nobody loads it here
        return False
