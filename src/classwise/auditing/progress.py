"""How far an audit has come, on a terminal; nothing elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.progress import Progress, TaskID
from torch import Tensor

from classwise.terminal import Terminal


def warn(words: str) -> None:
    """Say on stderr what must be known, also when quiet; nothing where there is nothing to say."""
    if words:
        Terminal(stderr=True).print(words, highlight=False, soft_wrap=True, markup=False)


class Bar:
    """One line per condition, with what a suite has left standing."""

    def __init__(self, quiet: bool = True, title: str = "audit") -> None:
        console = Terminal(stderr=True)
        hidden = quiet or not console.is_terminal
        self.title = title
        self._progress = Progress(console=console, disable=hidden, transient=True)
        self._task: TaskID | None = None
        self._words = title

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        reason: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def begin(self, words: str, total: int) -> None:
        """Begin a line of so many images."""
        self._words = f"{self.title}: {words}"
        self._task = self._progress.add_task(self._words, total=total)

    def advance(self, images: int) -> None:
        """So many more are done."""
        if self._task is not None:
            self._progress.advance(self._task, images)

    def tell(self, attack: str, standing: Tensor) -> None:
        """Say how far a suite has come with its batch."""
        if self._task is not None and not self._progress.disable:
            left = f"{int(standing.sum())} of {len(standing)} stand after {attack}"
            self._progress.update(self._task, description=f"{self._words}: {left}")
