"""How far an audit has come."""

from __future__ import annotations

from types import TracebackType

from torch import Tensor

from classwise.progress import Course
from classwise.terminal import Terminal


def warn(words: str) -> None:
    """Say on stderr what must be known, also when quiet; nothing where there is nothing to say."""
    if words:
        Terminal(stderr=True).print(words, highlight=False, soft_wrap=True, markup=False)


class Bar:
    """One line per condition, with what a suite has left standing."""

    def __init__(self, quiet: bool = True, title: str = "audit") -> None:
        self.title, self._words = title, title
        self._course = Course(quiet=quiet, transient=True, warms_up=True)

    def __enter__(self) -> Bar:
        self._course.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        reason: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._course.__exit__(kind, reason, trace)

    def begin(self, words: str, total: int, done: int = 0) -> None:
        """Begin a line of so many images, some of which may be judged already."""
        self._words = f"{self.title}: {words}"
        self._course.begin(self._words, total, done, unit="image")

    def advance(self, images: int) -> None:
        """So many more are done."""
        self._course.advance(images)

    def tell(self, attack: str, standing: Tensor) -> None:
        """Say how far a suite has come with its batch."""
        due = self._course.due
        if self._course.live or due:  # counting waits for the device
            left = f"{int(standing.sum())} of {len(standing)} stand after {attack}"
            self._course.now(f"{self._words}: {left}")
        if due:
            self._course.line()
