"""What a person sees while training runs."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from classwise.progress import Course
from classwise.spelling import one_line
from classwise.terminal import Terminal

_TITLE = 16  # letters of a recipe's name where the line must fit a terminal


def tell(words: str, quiet: bool) -> None:
    """Say one thing on stderr, unless quiet."""
    if not quiet:
        Terminal(stderr=True).print(words, highlight=False, soft_wrap=True, markup=False)


class TrainProgress:
    """A live bar on a terminal, a few plain lines elsewhere, only warnings when quiet."""

    def __init__(self, title: str, epochs: int, done: int, batches: int, quiet: bool) -> None:
        self.title, self.epochs = title, epochs
        self.warned: set[str] = set()
        self.course = Course(quiet=quiet, warms_up=True)
        self.course.begin(title, epochs * batches, done * batches, unit="step")

    def __enter__(self) -> Self:
        self.course.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, what: BaseException | None, at: TracebackType | None
    ) -> None:
        self.course.__exit__(kind, what, at)

    def batch(self) -> None:
        """Note that one batch is done."""
        self.course.advance()

    def warn_once(self, about: str, words: str) -> None:
        """Say what is no progress but must be known, also when quiet."""
        if about not in self.warned:
            self.warned.add(about)
            self.course.console.print(f"{self.title}: {words}", highlight=False, soft_wrap=True)

    def epoch(
        self, finished: int, loss: float, overall: float, worst: float, condition: str
    ) -> None:
        """Say how the epoch went."""
        name = one_line(self.title, _TITLE) if self.course.live else f"{self.title}:"
        self.course.now(
            f"{name} {finished} of {self.epochs} epochs, loss {loss:.3f}, "
            f"{condition} {100 * overall:.0f} %, worst class {100 * worst:.0f} %"
        )
        often = max(1, self.epochs // 5)
        if finished % often == 0 or finished == self.epochs:
            self.course.line()
