"""What a person sees while training runs."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from classwise.terminal import Terminal


def tell(words: str, quiet: bool) -> None:
    """Say one thing on stderr, unless quiet."""
    if not quiet:
        Terminal(stderr=True).print(words, highlight=False, soft_wrap=True, markup=False)


class TrainProgress:
    """A live bar on a terminal, a few plain lines elsewhere, only warnings when quiet."""

    def __init__(self, title: str, epochs: int, done: int, batches: int, quiet: bool) -> None:
        self.console = Terminal(stderr=True)
        self.title, self.epochs, self.batches, self.quiet = title, epochs, batches, quiet
        self.live = self.console.is_terminal and not quiet
        self.warned: set[str] = set()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[news]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.live,
        )
        self.task = self.bar.add_task(
            title, total=epochs * batches, completed=done * batches, news=""
        )

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, what: BaseException | None, at: TracebackType | None
    ) -> None:
        self.bar.stop()

    def batch(self) -> None:
        """Note that one batch is done."""
        self.bar.advance(self.task)

    def warn_once(self, about: str, words: str) -> None:
        """Say what is no progress but must be known, also when quiet."""
        if about not in self.warned:
            self.warned.add(about)
            self.console.print(f"{self.title}: {words}", highlight=False, soft_wrap=True)

    def epoch(
        self, finished: int, loss: float, overall: float, worst: float, condition: str
    ) -> None:
        """Say how the epoch went."""
        news = (
            f"epoch {finished}/{self.epochs}  loss {loss:.3f}  "
            f"{condition} {100 * overall:.0f} %  worst class {100 * worst:.0f} %"
        )
        self.bar.update(self.task, news=news)
        often = max(1, self.epochs // 5)
        if not (self.live or self.quiet) and (finished % often == 0 or finished == self.epochs):
            self.console.print(f"{self.title}: {news}", highlight=False, soft_wrap=True)
