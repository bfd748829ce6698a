"""How far a long task has come: one line of a terminal, or, in a log file, one a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from classwise.terminal import Terminal

FIRST, EVERY = 20.0, 60.0  # seconds to the first line where there is no terminal, and between two


class Course:
    """A live line on a terminal, cut to its width; a plain line a minute elsewhere; or nothing.

    Where the first step `warms_up`, it takes longer than others, and tells nothing of them.
    """

    def __init__(
        self,
        *,
        quiet: bool,
        console: Console | None = None,
        transient: bool = False,
        warms_up: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console or Terminal(stderr=True)
        self.quiet, self.clock, self.warms_up = quiet, clock, warms_up
        self.live = self.console.is_terminal and not quiet
        # Words give way to the bar and the time left, which have the last columns for themselves.
        words = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        self._bar = Progress(
            TextColumn("{task.description}", table_column=words),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True)),
            console=self.console,
            disable=not self.live,
            transient=transient,
            expand=True,
        )
        self._task: TaskID | None = None
        self._words, self._unit, self._total, self._done = "", "", 0, 0
        self._cold, self._said, self._patience = warms_up, clock(), FIRST
        self._last = self._counted_since = clock()
        self._counted_from = 0  # the time left is judged by what was done from there, since then

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, what: BaseException | None, at: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, words: str, total: int, done: int = 0, *, unit: str = "") -> None:
        """Begin a task of so many pieces, some of which may be done already.

        A plain line calls a piece by its `unit`, such as `step`.
        """
        self._unit = f"{unit} " if unit else ""
        self._words, self._total, self._done, self._cold = words, total, done, self.warms_up
        self._last = self.clock()
        self._count_anew()
        self._task = self._bar.add_task(escape(words), total=total, completed=done, left="")

    def advance(self, by: int = 1) -> None:
        """So many more pieces are done."""
        if by > self._done - self._counted_from:
            self._count_anew()  # steps grow: this one tells more than all before it
        self._done, self._last = self._done + by, self.clock()
        if self._cold:
            self._cold = False
            self._count_anew()
        if self._task is not None:
            self._bar.update(self._task, advance=by, left=self._left())
        if self.due:
            self.line()

    @property
    def due(self) -> bool:
        """Whether somebody is waiting for a plain line."""
        return not (self.live or self.quiet) and self.clock() - self._said >= self._patience

    def now(self, words: str) -> None:
        """Change the words of the task."""
        self._words = words
        if self._task is not None:
            self._bar.update(self._task, description=escape(words))

    def line(self) -> None:
        """Write a plain line, where no bar is seen and anybody wants to know."""
        self._said, self._patience = self.clock(), EVERY
        if not (self.live or self.quiet):
            left = f", {self._left()}" if self._left() else ""
            words = f"{self._words} ({self._unit}{self._done} of {self._total}{left})"
            self.console.print(words, highlight=False, soft_wrap=True, markup=False)

    def _count_anew(self) -> None:
        """Judge the time left by what comes after the last step alone."""
        self._counted_from, self._counted_since = self._done, self._last

    def _left(self) -> str:
        """By the mean of all pieces counted: what comes between two of them counts as well."""
        new = self._done - self._counted_from
        if new <= 0 or self._done >= self._total:
            return ""
        seconds = (self.clock() - self._counted_since) / new * (self._total - self._done)
        return f"{spell_seconds(seconds)} left"


def spell_seconds(seconds: float) -> str:
    """A time, as roughly as it is known.

    >>> [spell_seconds(value) for value in (0.0321, 40, 170, 9000, 500_000)]
    ['0.032 s', '40 s', '3 min', '2.5 h', '5.8 days']
    """
    for unit, name, digits in ((86_400, "days", 1), (3600, "h", 1), (60, "min", 0)):
        if seconds >= 1.7 * unit:
            return f"{seconds / unit:.{digits}f} {name}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"
