"""The one road of every audit: ask the record what is known, judge what is missing, append."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import Protocol

import numpy as np
from torch import Tensor

from classwise.attacks.condition import Condition
from classwise.auditing.plan import Plan
from classwise.data.view import Whole
from classwise.record.record import Record
from classwise.record.rows import Predictions, Verdicts
from classwise.record.shelf import Shelf

LOST = 60.0  # seconds of work that a kill may cost, give or take the unevenness of images
FIRST = 16  # images in the first piece, before anybody knows how long one takes
_POOL = 2**27  # bytes of pixels from which a working batch is refilled where nothing is kept


class Listener(Protocol):
    """Somebody who wants to know how far an audit has come."""

    def begin(self, words: str, total: int) -> None:
        """A condition begins, with so many images."""

    def advance(self, images: int) -> None:
        """So many more are done."""

    def tell(self, attack: str, standing: Tensor) -> None:
        """An attack of a suite has left these standing."""


class Nobody:
    """Listens to nothing."""

    def begin(self, words: str, total: int) -> None:
        """A condition begins."""

    def advance(self, images: int) -> None:
        """So many more are done."""

    def tell(self, attack: str, standing: Tensor) -> None:
        """An attack of a suite is done."""


_NOBODY = Nobody()


def run_audit(
    plan: Plan, record: Record | None = None, listener: Listener = _NOBODY, *, tidy: bool = True
) -> list[Predictions]:
    """Verdicts under every condition of a plan, in its order, on its images in theirs.

    What the record holds is not judged again; every piece of what it lacks is on disk before the
    next begins. If the model raises, what was judged stays and the error names the samples. With
    `tidy` a condition's shards become one file at its end.
    """
    found = []
    with plan.subject.asked():
        for condition in plan.conditions:
            listener.begin(condition.name, len(plan.data))
            found.append(_complete(plan, condition, record, listener))
            if record is not None and tidy:
                record.tidy(condition)
    return found


def _complete(
    plan: Plan, condition: Condition, record: Record | None, listener: Listener
) -> Predictions:
    """Verdicts on all images of a plan under one condition, judging only those that are missing."""
    wanted = plan.data.numbers
    shelf = Shelf(None, None) if record is None else record.shelf(condition)
    if record is not None:
        record.claim(condition, wanted)
    todo = np.flatnonzero(~shelf.has(wanted, pictured=plan.with_images))
    done = len(wanted) - len(todo)
    listener.advance(done)
    for rows in _pieces(plan, condition, todo, kept=record is not None):
        batch = plan.data.batch(rows)
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


def _pieces(plan: Plan, condition: Condition, todo: Whole, *, kept: bool) -> Iterator[Whole]:
    """Cut what is to be judged into pieces; no verdict depends on where."""
    width = plan.subject.width
    if kept:
        # twice what is asked at a time, so that others move up as samples fall; somebody else's
        # attack draws by its batch, so its batches must not follow the clock
        yield from pieces(todo, width if condition.by_batch else 2 * width, condition.by_batch)
        return
    size = 4 * int(np.prod(plan.data.images.shape[1:]))
    batches = max(1, -(-_POOL // (size * width)))
    for begin in range(0, len(todo), batches * width):
        yield todo[begin : begin + batches * width]


def pieces(todo: Whole, most: int, steady: bool = False) -> Iterator[Whole]:
    """Cut row numbers into pieces that take at most about `LOST` seconds, and `most` rows.

    What is handed out is taken to be judged and kept when the next piece is asked for. `steady`
    pieces have `most` rows whatever the clock says, for attacks that draw by their batch.

    >>> [part.tolist() for part in pieces(np.arange(5), 2)]
    [[0, 1], [2, 3], [4]]
    """
    done, size = 0, most if steady else min(most, FIRST)
    while done < len(todo):
        began = monotonic()
        yield todo[done : done + size]
        done += size
        if not steady:
            taken = max(monotonic() - began, 1e-6)
            # half of what may be lost: the next images may take longer than these
            size = max(1, min(most, int(size * LOST / (2 * taken))))
