"""The one road of every audit: ask the record what is known, judge what is missing, append."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from classwise.attacks.condition import Condition
from classwise.auditing.plan import Plan
from classwise.data.view import Whole
from classwise.record.record import Record
from classwise.record.rows import Predictions, Verdicts, certified_at, select
from classwise.record.shelf import Shelf

LOST = 60.0  # seconds of work that a kill may cost, if one image takes less than half of it
HELD = 10.0  # of them, how long verdicts of small pieces may wait for a common file
FIRST = 2  # images in the first piece, before anybody knows how long one takes
_GROWTH = 4  # times as many images as in the piece before: those may have fallen at once
_POOL = 2**27  # bytes of pixels from which a working batch is refilled where nothing is kept


class Listener(Protocol):
    """Somebody who wants to know how far an audit has come."""

    def begin(self, words: str, total: int, done: int = 0) -> None:
        """A condition begins, with so many images, of which some may be judged already."""

    def advance(self, images: int) -> None:
        """So many more are done."""

    def tell(self, attack: str, standing: Tensor) -> None:
        """An attack of a suite has left these standing."""


class Nobody:
    """Listens to nothing."""

    def begin(self, words: str, total: int, done: int = 0) -> None:
        """A condition begins."""

    def advance(self, images: int) -> None:
        """So many more are done."""

    def tell(self, attack: str, standing: Tensor) -> None:
        """An attack of a suite is done."""


_NOBODY = Nobody()


@dataclass
class Pace:
    """How long images take under a condition, by the pieces before; at first nobody knows.

    A piece of n images takes about fixed + n·each seconds: some thousands of passes come one after
    the other, however few images there are.
    """

    count: int = 0  # images in the last piece
    seconds: float = 0.0  # that it took
    fixed: float = 0.0

    def heard(self, count: int, seconds: float) -> None:
        """A piece is done."""
        seconds = max(seconds, 1e-6)
        self.fixed = min(self.fixed, seconds)
        if self.count and max(count, self.count) >= 2 * min(count, self.count):
            each = (seconds - self.seconds) / (count - self.count)
            # below 0 the images were uneven, which says nothing of what is fixed
            self.fixed = max(seconds - each * count, 0.0) if each >= 0 else 0.0
        self.count, self.seconds = count, seconds

    def rows(self, most: int) -> int:
        """So many images take half of what may be lost: the next may take longer than these.

        Where one image alone takes longer than that, a piece may take twice as long as one image:
        ever smaller pieces would save nothing and take for ever.

        >>> pace = Pace()
        >>> pace.rows(256)
        2
        >>> pace.heard(2, 7.0)
        >>> pace.rows(256), pace.rows(4)
        (8, 4)
        """
        if not self.count:
            return max(1, min(most, FIRST))
        safe = LOST / 2 * self.count / self.seconds  # as if nothing were fixed
        each = max(self.seconds - self.fixed, 1e-9) / self.count
        fitting = max(LOST / 2 - self.fixed, self.fixed) / each
        wish = max(safe, min(fitting, 2 * self.count))
        return max(1, min(most, _GROWTH * self.count, int(wish)))


def run_audit(
    plan: Plan,
    record: Record | None = None,
    listener: Listener = _NOBODY,
    *,
    tidy: bool = True,
    paces: MutableMapping[str, Pace] | None = None,
) -> list[Predictions]:
    """Verdicts under every condition of a plan, in its order, on its images in theirs.

    A condition with a limit is asked about so many of them (`plan.part_of`).

    What the record holds is not judged again; every piece of what it lacks is on disk before the
    next begins, unless the record is gathering. If the model raises, what was judged stays and the
    error names the samples. With `tidy` a condition's shards become one file at its end. `paces`
    go from one run of a condition to the next, by its name.
    """
    found, paces = [], {} if paces is None else paces
    if record is not None:
        record.open(plan.conditions)
    with plan.subject.asked():
        for condition in plan.conditions:
            part = plan.part_of(condition)
            pace = paces.setdefault(condition.name, Pace())
            found.append(_complete(part, condition, record, listener, pace))
            if record is not None and tidy:
                record.tidy(condition)
    return found


def _complete(
    plan: Plan, condition: Condition, record: Record | None, listener: Listener, pace: Pace
) -> Predictions:
    """Verdicts on all images of a plan under one condition, judging only those that are missing."""
    wanted = plan.data.numbers
    shelf = Shelf(None, None) if record is None else record.shelf(condition)
    if record is not None:
        _derive(plan, condition, record)
        record.claim(condition, wanted)
    todo = np.flatnonzero(~shelf.has(wanted, pictured=plan.with_images))
    done = len(wanted) - len(todo)
    listener.begin(condition.name, len(wanted), done)
    judging = 0
    cut = _pools(plan, todo) if record is None else _pieces(plan, condition, todo, pace)
    for rows in cut:
        batch = plan.data.batch(rows)
        judging += len(rows)
        plan.data.expect(todo[judging : judging + len(rows)])
        try:
            judged = condition.judge(plan.subject, batch, listener.tell)
        except Exception as reason:
            if record is not None:
                raise record.broken_off(reason, wanted[rows], done, len(wanted)) from reason
            span = f"samples {wanted[rows].min()} to {wanted[rows].max()}"
            reason.add_note(f"while {condition.name} was run on {span}")
            raise
        found = Predictions.of(Verdicts(condition, batch, judged, plan.with_images))
        if record is None:
            shelf.add(found)
        else:
            record.append(condition, found)
        done += len(rows)
        listener.advance(len(rows))
    return shelf.rows(wanted)


def _derive(plan: Plan, condition: Condition, record: Record) -> None:
    """Write down what a certificate at another radius says at this one, without the model."""
    if condition.kind != "certificate" or condition.threat is None:
        return
    shelf, traits = record.shelf(condition), condition.traits
    for known in record.everything():
        same = (known.kind, known.seed, known.family, known.options) == (
            *(condition.kind, condition.seed, traits.family, traits.options),
        )
        if same and (known.sigma, known.alpha) == (traits.sigma, traits.alpha):
            missing = np.flatnonzero(
                ~shelf.has(known.sample) & np.isin(known.sample, plan.data.numbers)
            )
            rows = select(known, missing)
            radius = condition.threat.at(torch.from_numpy(rows.sample)).numpy()
            if len(missing):
                found = certified_at(rows, radius, condition.name, plan.subject.num_classes)
                record.append(condition, found)


def _pools(plan: Plan, todo: Whole) -> Iterator[Whole]:
    """Cut what is to be judged and kept nowhere; no verdict depends on where."""
    width = plan.subject.width
    size = 4 * int(np.prod(plan.data.images.shape[1:]))
    batches = max(1, -(-_POOL // (size * width)))
    for begin in range(0, len(todo), batches * width):
        yield todo[begin : begin + batches * width]


def _pieces(plan: Plan, condition: Condition, todo: Whole, pace: Pace) -> Iterator[Whole]:
    """Cut what is to be judged and kept; no verdict depends on where."""
    # twice what is asked at a time, so that others move up as samples fall; somebody else's
    # attack draws by its batch, so its batches must not follow the clock
    width = plan.subject.width
    most = width if condition.by_batch else 2 * width
    return pieces(todo, most, condition.by_batch, pace)


def pieces(
    todo: Whole, most: int, steady: bool = False, pace: Pace | None = None
) -> Iterator[Whole]:
    """Cut row numbers into pieces that take at most about `LOST` seconds, and `most` rows.

    What is handed out is taken to be judged and kept when the next piece is asked for. `steady`
    pieces have `most` rows whatever the clock says, for attacks that draw by their batch.

    >>> [part.tolist() for part in pieces(np.arange(5), 2)]
    [[0, 1], [2, 3], [4]]
    """
    done, pace = 0, pace or Pace()
    while done < len(todo):
        began = monotonic()
        rows = todo[done : done + (most if steady else pace.rows(most))]
        yield rows
        done += len(rows)
        pace.heard(len(rows), monotonic() - began)
