"""Audit only as much as a question or a time budget asks for.

Images of every class are judged in random order; after each batch the evidence is weighed, and
the next batch goes to the classes that still matter.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from classwise.auditing.plan import Plan
from classwise.auditing.question import Question, Standing
from classwise.auditing.run import HELD, Listener, Pace, run_audit
from classwise.data.view import View
from classwise.draws import Draws
from classwise.errors import ClasswiseError
from classwise.record.record import Record
from classwise.record.rows import Predictions, concatenate, in_order_of
from classwise.spelling import few_names
from classwise.statistics.evidence import Rates, Whole, confidence_sequence
from classwise.statistics.intervals import check_level

Stopped: TypeAlias = Literal["settled", "time", "complete"]


@dataclass(frozen=True)
class PartialAudit:
    """What a question or a budget made of an audit."""

    found: list[Predictions]
    question: Question | None
    answer: bool | None
    stopped: Stopped
    class_names: tuple[str, ...]
    standing: Standing
    seconds: float
    known: int = 0  # images judged that a ledger knew before

    @property
    def whole(self) -> bool:
        """Whether every image of every class was judged, so that nothing was chosen."""
        named = self.question is not None and self.question.what != "worst"
        return self.stopped == "complete" and not named

    @property
    def saved(self) -> float:
        """How many times less work than the full audit, counted in images."""
        return float(self.standing.sizes.sum() / max(int(self.standing.seen.sum()), 1))

    @property
    def unexamined(self) -> dict[str, int]:
        """Images of each class that were not looked at."""
        left = (self.standing.sizes - self.standing.seen).tolist()
        return {name: n for name, n in zip(self.class_names, left, strict=True) if n}

    @property
    def intervals(self) -> tuple[Rates, Rates]:
        """Where each class would stand in the full audit; holds although images were chosen."""
        return self.intervals_under(self.found[-1])

    def intervals_under(self, found: Predictions) -> tuple[Rates, Rates]:
        """The same under any condition: each class's images come in random order under all."""
        count, standing = len(self.class_names), self.standing
        asked = found.correct & (standing.sizes > 0)[found.label]
        hits = np.bincount(found.label[asked], minlength=count).astype(np.int64)
        return confidence_sequence(hits, standing.seen, standing.sizes, standing.level)

    @property
    def _work(self) -> str:
        """What was done now; work is saved only where some was done, and none before."""
        seen, total = int(self.standing.seen.sum()), int(self.standing.sizes.sum())
        if not self.known:
            return f", {self.saved:.1f} times less work than the full audit" if seen < total else ""
        if self.known < seen:
            return f", {self.known} of them known from before and {seen - self.known} anew"
        return ", all of them known from before: nothing was judged anew"

    @property
    def words(self) -> str:
        """The answer, what it cost, and what was left out."""
        seen, total = int(self.standing.seen.sum()), int(self.standing.sizes.sum())
        under = self.found[-1].condition
        parts = []
        if self.question is not None:
            said = {True: "yes", False: "no", None: "undecided"}[self.answer]
            parts.append(f"{self.question} under {under}: {said}")
            if self.answer is not None and seen < total:
                parts[0] += f" ({100 * self.standing.level:g} % sure of what the full audit says)"
            below, meets = self.standing.decided
            for word, mask in (("below the bar", below), ("not settled", ~below & ~meets)):
                if mask.any() and (word == "below the bar" or self.answer is None):
                    names = [self.class_names[k] for k in np.flatnonzero(mask)]
                    parts.append(f"{word}: {few_names(names, 10)}")
        parts.append(f"{seen} of {total} images judged{self._work}")
        if self.unexamined:
            left = [f"{name} {count}" for name, count in self.unexamined.items()]
            why = {"time": "time was up", "settled": "not needed", "complete": ""}[self.stopped]
            parts.append(f"not examined ({why}): {few_names(left, 10)}")
        return "; ".join(parts)


@dataclass(frozen=True)
class Limits:
    """When to stop: at the answer to a question, after some minutes, or at the end."""

    question: Question | None = None
    minutes: float | None = None
    level: float = 0.95
    batch_size: int = 64  # images between two looks at the evidence
    seed: int = 0  # of the order of the images

    def __post_init__(self) -> None:
        check_level(self.level)
        if self.minutes is not None and not self.minutes > 0:
            raise ClasswiseError(f"minutes is {self.minutes}; give a time above 0, such as 10")
        if self.batch_size < 1:
            raise ClasswiseError(f"batch_size is {self.batch_size}; give a whole number from 1 up")

    def __str__(self) -> str:
        return str(self.question or f"{self.minutes:g} minutes")


class _Queue:
    """The images of each class in an order that the seed alone decides."""

    def __init__(self, data: View, limits: Limits) -> None:
        labels, count = data.truth, len(data.class_names)
        asked = np.ones(count, bool)
        if limits.question is not None and limits.question.what != "worst":
            asked = np.array([name == limits.question.what for name in data.class_names])
        every = np.bincount(labels, minlength=count)
        self.sizes = np.where(asked, every, 0).astype(np.int64)
        if not self.sizes.any():
            raise ClasswiseError("no images of the classes in question; there is nothing to audit")
        shuffled = Draws(limits.seed, "question").order(len(labels)).numpy()
        self._rows = shuffled[np.argsort(labels[shuffled], kind="stable")]
        self._first = np.cumsum(every) - every

    def next(self, seen: Whole, take: Whole) -> Whole:
        """So many images of each class, after those that were seen."""
        chosen: Whole = self._rows[_ranges(self._first + seen, take)]
        return chosen


def examine(
    data: View,
    judge: Callable[[View], list[Predictions]],
    limits: Limits,
    *,
    clock: Callable[[], float] = time.monotonic,
    advance: Callable[[int], None] | None = None,
    at_once: bool = False,
) -> PartialAudit:
    """Judge batch after batch until the question is settled, time is up, or all is judged.

    With `at_once` all is judged in the first: it costs nothing, and the answer is no estimate.

    `judge` gives the verdicts on some images under every condition; the last condition is the one
    the question is about. The order of images depends on the seed and their number alone, so a
    second call with the same ledger walks the same way.
    """
    queue, count = _Queue(data, limits), len(data.class_names)
    bar = None if limits.question is None else limits.question.bar
    zero = np.zeros_like(queue.sizes)
    standing = Standing(zero, zero, queue.sizes, bar, limits.level)
    parts: list[list[Predictions]] = []
    begin, longest = clock(), 0.0
    stopped: Stopped = "settled"
    while True:
        rest = queue.sizes - standing.seen
        take = rest if at_once else standing.allocate(limits.batch_size)
        if not take.any():
            stopped = "complete" if (standing.seen == queue.sizes).all() else "settled"
            break
        started = clock()
        if limits.minutes and parts and started - begin + longest > 60 * limits.minutes:
            stopped = "time"
            break
        found = judge(data.take(queue.next(standing.seen, take)))
        parts.append(found)
        right = np.bincount(found[-1].label[found[-1].correct], minlength=count)
        standing = replace(standing, hits=standing.hits + right, seen=standing.seen + take)
        longest = max(longest, clock() - started)
        if advance is not None:
            advance(int(take.sum()))
    told = math.nan if limits.question is None else float(standing.answer())
    joined = [concatenate(column) for column in zip(*parts, strict=True)]
    return PartialAudit(
        [in_order_of(np.sort(one.sample), one) for one in joined],
        limits.question,
        None if math.isnan(told) else bool(told),
        stopped,
        data.class_names,
        standing,
        clock() - begin,
    )


def audit_partly(
    plan: Plan, record: Record | None, listener: Listener, limits: Limits
) -> PartialAudit:
    """Run a plan until a question is settled or time is up; then tidy the record.

    Its steps are small: their verdicts are written every `HELD` seconds, and at the end.
    """
    if plan.limits:
        raise ClasswiseError(
            f"{limits}: images are chosen as the audit goes, so no condition can have a number of "
            f"its own ({plan.limits}); leave that out, or give --limit for all conditions"
        )
    known = np.arange(0)
    if record is not None:
        known = record.known(plan.conditions, plan.data.numbers)
        # Rows that are kept before the end must not pass for an audit if there is no end.
        begun = f"{limits}: broken off before there was an answer; audit again, or in full"
        record.remark(record.notes(plan.asked, len(plan.data.labels), begun))
    listener.begin(f"{limits}: at most", len(plan.data))
    paces: dict[str, Pace] = {}

    def judge(some: View) -> list[Predictions]:
        return run_audit(replace(plan, data=some), record, tidy=False, paces=paces)

    with contextlib.nullcontext() if record is None else record.gathering(HELD):
        free = len(known) == len(plan.data)
        partly = examine(plan.data, judge, limits, advance=listener.advance, at_once=free)
    for condition in plan.conditions:
        if record is not None:
            record.tidy(condition)
    return replace(partly, known=int(np.isin(partly.found[0].sample, known).sum()))


def _ranges(starts: Whole, counts: Whole) -> Whole:
    """All of start, start + 1, … of each class, one class after the other.

    >>> _ranges(np.array([0, 10]), np.array([2, 3])).tolist()
    [0, 1, 10, 11, 12]
    """
    ends = np.cumsum(counts)
    return np.repeat(starts - ends + counts, counts) + np.arange(int(ends[-1]))
