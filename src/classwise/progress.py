"""How far a long task has come: one line of a terminal, or, in a log file, one a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from classwise.terminal import Terminal

EVERY = 60.0  # seconds between two lines where there is no terminal


class Course:
    """A live line on a terminal, cut to its width; a plain line a minute elsewhere; or nothing."""

    def __init__(
        self,
        *,
        quiet: bool,
        console: Console | None = None,
        transient: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console or Terminal(stderr=True)
        self.quiet, self.clock = quiet, clock
        self.live = self.console.is_terminal and not quiet
        # Words give way to the bar and the time left, which have the last columns for themselves.
        words = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        self._bar = Progress(
            TextColumn("{task.description}", table_column=words),
            BarColumn(bar_width=10),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            TextColumn("left", table_column=Column(no_wrap=True)),
            console=self.console,
            disable=not self.live,
            transient=transient,
            expand=True,
        )
        self._task: TaskID | None = None
        self._words, self._total, self._done = "", 0, 0
        self._began_with, self._began = 0, clock()
        self._said = clock()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, what: BaseException | None, at: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, words: str, total: int, done: int = 0) -> None:
        """Begin a task of so many pieces, some of which may be done already."""
        self._words, self._total, self._done, self._began_with = words, total, done, done
        self._began = self.clock()
        self._task = self._bar.add_task(escape(words), total=total, completed=done)

    def advance(self, by: int = 1) -> None:
        """So many more pieces are done."""
        self._done += by
        if self._task is not None:
            self._bar.advance(self._task, by)
        if self.due:
            self.line()

    @property
    def due(self) -> bool:
        """Whether somebody is waiting for a plain line."""
        return not (self.live or self.quiet) and self.clock() - self._said >= EVERY

    def now(self, words: str) -> None:
        """Change the words of the task."""
        self._words = words
        if self._task is not None:
            self._bar.update(self._task, description=escape(words))

    def line(self) -> None:
        """Write a plain line, where no bar is seen and anybody wants to know."""
        self._said = self.clock()
        if not (self.live or self.quiet):
            words = f"{self._words} ({self._done} of {self._total}{self._left()})"
            self.console.print(words, highlight=False, soft_wrap=True, markup=False)

    def _left(self) -> str:
        new = self._done - self._began_with
        if new <= 0 or self._done >= self._total:
            return ""
        return f", {spell_time((self.clock() - self._began) / new * (self._total - self._done))}"


def spell_time(seconds: float) -> str:
    """A time that is left, as roughly as it is known.

    >>> spell_time(40), spell_time(170), spell_time(9000)
    ('40 s left', '3 min left', '2.5 h left')
    """
    if seconds < 100:
        return f"{seconds:.0f} s left"
    return f"{seconds / 60:.0f} min left" if seconds < 6000 else f"{seconds / 3600:.1f} h left"
