"""Work done while somebody else works: the next batches are read during the present one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar

AHEAD = 2  # batches on their way: one ready, one being read
T = TypeVar("T")
R = TypeVar("R")


class Later(Generic[R]):
    """One piece of work on a thread of its own, which ends with it.

    Nothing is left to clean up: whoever loses interest, by an error or Ctrl-C, just goes away.
    """

    def __init__(self, make: Callable[[], R]) -> None:
        self._make = make
        self._found: R | None = None
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="classwise-ahead")
        self._thread.start()

    def _work(self) -> None:
        try:
            self._found = self._make()
        except BaseException as reason:  # it is raised where the result is wanted
            self._trouble = reason

    def get(self) -> R:
        """Wait for the result, or raise what went wrong."""
        self._thread.join()
        if self._trouble is not None:
            raise self._trouble
        found, self._found = self._found, None
        return found  # type: ignore[return-value]  # R may itself be None


def read_ahead(make: Callable[[T], R], items: Sequence[T], depth: int = AHEAD) -> Iterator[R]:
    """`map(make, items)` that makes up to `depth` results before they are asked for.

    >>> list(read_ahead(str, range(3)))
    ['0', '1', '2']
    """
    if len(items) == 1:  # there is nothing to do meanwhile
        yield make(items[0])
        return
    waiting: deque[Later[R]] = deque()
    for item in items:
        waiting.append(Later(partial(make, item)))
        if len(waiting) > depth:
            yield waiting.popleft().get()
    while waiting:
        yield waiting.popleft().get()
