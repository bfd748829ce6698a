"""Audit only as much as a question or a time budget asks for.

Images of every class are judged in random order; after each batch the evidence is weighed, and
the next batch goes to the classes that still matter. `classwise.auditing.evidence` says why one
may look as often as one likes.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from classwise.auditing.evidence import Rates, Whole, confidence_sequence, evidence
from classwise.auditing.intervals import check_level
from classwise.auditing.ledger import in_order_of, piece
from classwise.auditing.shards import Predictions, concatenate
from classwise.data.batches import Batches
from classwise.draws import Draws
from classwise.errors import ClasswiseError, unknown
from classwise.spelling import few_names

PILOT = 8  # images of every class before any class is preferred


@dataclass(frozen=True, slots=True)
class Question:
    """Whether the worst class, or a named one, reaches a bar."""

    what: str
    bar: float

    def __str__(self) -> str:
        return f"{self.what}>={self.bar:g}"


def parse_question(text: str, class_names: Sequence[str]) -> Question:
    """Read `worst>=0.2` or `cat>=40%`.

    >>> parse_question("worst >= 0.2", ["cat"]), parse_question("cat>=40%", ["cat"]).bar
    (Question(what='worst', bar=0.2), 0.4)
    """
    match = re.fullmatch(r"\s*(.+?)\s*>=\s*([0-9.]+)\s*(%?)\s*", text)
    if match is None:
        raise ClasswiseError(
            f"question {text!r} cannot be read; write it as worst>=0.2 or cat>=40%"
        )
    try:
        bar = float(match[2]) / (100 if match[3] else 1)
    except ValueError:
        bar = math.nan
    if not 0 < bar <= 1:
        raise ClasswiseError(
            f"question {text!r}: the bar must lie above 0 and be at most 1 or 100%"
        )
    if match[1] not in ("worst", *class_names):
        raise unknown("class in a question", match[1], ["worst", *class_names])
    return Question(match[1], bar)


@dataclass(frozen=True)
class Standing:
    """What is known of every class after some images; leading axes are repetitions.

    A class is below the bar once E_below ≥ K/α and meets it once E_meets ≥ 1/α, α = 1 − level.
    One wrong "below" suffices for a wrong "no", hence the K; a wrong "yes" needs a wrong "meets"
    of the class that is truly below, hence none. Either way an answer is wrong with chance ≤ α.
    """

    hits: Whole
    seen: Whole
    sizes: Whole
    bar: float | None = None
    level: float = 0.95

    @cached_property
    def decided(self) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Which classes are surely below the bar, and which surely meet it."""
        assert self.bar is not None
        present = self.sizes > 0
        count = np.maximum(present.sum(-1, keepdims=True), 1)
        needed = np.ceil(self.bar * self.sizes - 1e-9).astype(np.int64)
        below, meets = evidence(self.hits, self.seen, self.sizes, needed)
        sure = -math.log1p(-self.level)
        return present & (below >= sure + np.log(count)), ~present | (meets >= sure)

    def open_classes(self) -> npt.NDArray[np.bool_]:
        """Classes on which more images would still be spent, if any are left."""
        left = self.seen < self.sizes
        if self.bar is not None:
            below, meets = self.decided
            return left & ~below & ~meets & ~below.any(-1, keepdims=True)
        # Without a bar: those that may yet turn out to be the worst, then all others.
        count = np.maximum((self.sizes > 0).sum(-1, keepdims=True), 1)
        level = 1 - (1 - self.level) / int(count.max())
        low, high = confidence_sequence(self.hits, self.seen, self.sizes, level)
        ceiling = np.where(self.sizes > 0, high, 1.0).min(-1, keepdims=True)
        rivals = left & (np.nan_to_num(low, nan=1.0) <= ceiling)
        return np.where(rivals.any(-1, keepdims=True), rivals, left)

    def allocate(self, count: int) -> Whole:
        """How many images of each class to judge next, at most `count` in all.

        First a few of every class; then all of the batch for the class that looks worst, if it
        looks to be below the bar (one such class settles the answer); else evenly.
        """
        undecided = self.open_classes()
        left = self.sizes - self.seen
        pilot = np.where(undecided, np.clip(PILOT - self.seen, 0, left), 0)
        rate = np.where(undecided, (self.hits + 1) / (self.seen + 2), np.inf)
        worst = rate == rate.min(-1, keepdims=True)
        worst &= worst.cumsum(-1) == 1
        bar = -1.0 if self.bar is None else self.bar
        chosen = np.where(rate.min(-1, keepdims=True) < bar, worst & undecided, undecided)
        share = -(-count // np.maximum(chosen.sum(-1, keepdims=True), 1))
        even = np.where(chosen, np.minimum(share, left), 0)
        wanted = np.where(pilot.any(-1, keepdims=True), pilot, even).astype(np.int64)
        return _at_most(count, wanted, self.seen)

    def answer(self) -> npt.NDArray[np.float64]:
        """1 for yes, 0 for no, nan while it is open."""
        below, meets = self.decided
        return np.where(below.any(-1), 0.0, np.where(meets.all(-1), 1.0, np.nan))


@dataclass(frozen=True)
class PartialAudit:
    """What a question or a budget made of an audit."""

    found: list[Predictions]
    question: Question | None
    answer: bool | None
    stopped: Literal["settled", "time", "complete"]
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
    def words(self) -> str:
        """The answer, what it cost, and what was left out."""
        seen, total = int(self.standing.seen.sum()), int(self.standing.sizes.sum())
        under = self.found[-1].condition
        parts = []
        if self.question is not None:
            said = {True: "yes", False: "no", None: "undecided"}[self.answer]
            parts.append(f"{self.question} under {under}: {said}")
            if self.answer is not None:
                parts[0] += f" ({100 * self.standing.level:g} % sure of what the full audit says)"
            below, meets = self.standing.decided
            for word, mask in (("below the bar", below), ("not settled", ~below & ~meets)):
                if mask.any() and (word == "below the bar" or self.answer is None):
                    names = [self.class_names[k] for k in np.flatnonzero(mask)]
                    parts.append(f"{word}: {few_names(names, 10)}")
        work = f"{seen} of {total} images judged"
        work += f", {self.known} of them known from before" if self.known else ""
        work += f", {self.saved:.1f} times less work than the full audit" if seen < total else ""
        parts.append(work)
        if self.unexamined:
            left = [f"{name} {count}" for name, count in self.unexamined.items()]
            why = {"time": "time was up", "settled": "not needed", "complete": ""}[self.stopped]
            parts.append(f"not examined ({why}): {few_names(left, 10)}")
        return "; ".join(parts)


def examine(
    batches: Batches,
    class_names: Sequence[str],
    judge: Callable[[Batches], list[Predictions]],
    *,
    question: Question | None = None,
    minutes: float | None = None,
    level: float = 0.95,
    batch_size: int = 64,
    seed: int = 0,
    clock: Callable[[], float] = time.monotonic,
    advance: Callable[[int], None] | None = None,
) -> PartialAudit:
    """Judge batch after batch until the question is settled, time is up, or all is judged.

    `judge` gives the verdicts on one batch under every condition; the last condition is the one
    the question is about. The order of images depends on `seed` and their number alone, so a
    second call with the same ledger walks the same way.
    """
    check_level(level)
    if minutes is not None and not minutes > 0:
        raise ClasswiseError(f"minutes is {minutes}; give a time above 0, such as 10")
    if batch_size < 1:
        raise ClasswiseError(f"batch_size is {batch_size}; give a whole number from 1 up")
    labels = batches.labels.cpu().numpy()
    asked = np.ones(len(class_names), bool)
    if question is not None and question.what != "worst":
        asked = np.array([name == question.what for name in class_names])
    sizes = np.where(asked, np.bincount(labels, minlength=len(class_names)), 0).astype(np.int64)
    if not sizes.any():
        raise ClasswiseError("no images of the classes in question; there is nothing to audit")
    shuffled = Draws(seed, "question").order(len(labels)).numpy()
    queue = shuffled[np.argsort(labels[shuffled], kind="stable")]
    every = np.bincount(labels, minlength=len(class_names))
    first = np.cumsum(every) - every
    bar = None if question is None else question.bar
    zero = np.zeros_like(sizes)
    standing = Standing(zero, zero, sizes, bar, level)
    parts: list[list[Predictions]] = []
    begin, longest = clock(), 0.0
    stopped: Literal["settled", "time", "complete"] = "settled"
    while True:
        take = standing.allocate(batch_size)
        if not take.any():
            stopped = "complete" if (standing.seen == sizes).all() else "settled"
            break
        started = clock()
        if minutes is not None and parts and started - begin + longest > 60 * minutes:
            stopped = "time"
            break
        rows = queue[_ranges(first + standing.seen, take)]
        found = judge(piece(batches, rows))
        parts.append(found)
        right = np.bincount(found[-1].label[found[-1].correct], minlength=len(class_names))
        standing = Standing(standing.hits + right, standing.seen + take, sizes, bar, level)
        longest = max(longest, clock() - started)
        if advance is not None:
            advance(len(rows))
    told = math.nan if question is None else float(standing.answer())
    joined = [concatenate(column) for column in zip(*parts, strict=True)]
    return PartialAudit(
        [in_order_of(np.sort(one.sample), one) for one in joined],
        question,
        None if math.isnan(told) else bool(told),
        stopped,
        tuple(class_names),
        standing,
        clock() - begin,
    )


def _at_most(count: int, wanted: Whole, seen: Whole) -> Whole:
    """Cut a wish down to `count` images in all, those of the least seen classes first.

    >>> _at_most(5, np.array([4, 4, 0, 4]), np.array([0, 2, 9, 1])).tolist()
    [3, 1, 0, 1]
    """
    # fill up to a common level: the highest one that `count` images reach
    low = np.zeros_like(wanted[..., :1])
    high = (seen + wanted).max(-1, keepdims=True)
    while (low < high).any():
        middle = (low + high + 1) // 2
        fits = np.clip(middle - seen, 0, wanted).sum(-1, keepdims=True) <= count
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
    taken = np.clip(low - seen, 0, wanted)
    more = (taken < wanted) & (seen + taken <= low)
    rest = more & (more.cumsum(-1) <= count - taken.sum(-1, keepdims=True))
    found: Whole = taken + rest
    return found


def _ranges(starts: Whole, counts: Whole) -> Whole:
    """All of start, start + 1, … of each class, one class after the other.

    >>> _ranges(np.array([0, 10]), np.array([2, 3])).tolist()
    [0, 1, 10, 11, 12]
    """
    ends = np.cumsum(counts)
    return np.repeat(starts - ends + counts, counts) + np.arange(int(ends[-1]))
