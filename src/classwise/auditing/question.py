"""A question to an audit, and what the images judged so far say to it.

`classwise.statistics.evidence` says why one may look as often as one likes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from classwise.errors import ClasswiseError, unknown
from classwise.literals import check_size
from classwise.statistics.evidence import Whole, confidence_sequence, evidence

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
    check_size(text)
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
