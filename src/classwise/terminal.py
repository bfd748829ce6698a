"""Where everything for a terminal is printed: names from strangers' files cannot speak to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.segment import Segment

from classwise.errors import defused


class Terminal(Console):
    r"""A console that shows control codes instead of obeying them, whatever is printed.

    Colours and cursor moves of our own are no part of a text, and stay. Words in brackets and
    between colons are what they are: paths and names may have them.

    >>> Terminal(width=40).print("a\x1b[2Jb [red]c[/d] :dog:", highlight=False)
    a\x1b[2Jb [red]c[/d] :dog:
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, **options})

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Cut into pieces as ever, and make each piece harmless."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(defused(segment.text), segment.style)
