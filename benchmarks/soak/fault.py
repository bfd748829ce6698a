"""A class of faults: how one of them is made, and what came of all that were tried."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

Attempt = Callable[[Random], str | None]
GIGABYTE = 1 << 30
SHORTEST, LONGEST = 30, 300  # letters of a message that is worth quoting


@dataclass(frozen=True)
class Fault:
    """One class of faults.

    `prepare` makes what is to be broken in an empty folder, and gives a function that breaks it
    once: it returns the line that the user sees, None where nothing was to be said, and raises
    where a result is wrong or an error is no ClasswiseError.
    """

    section: str
    name: str
    count: int  # how often it is tried in a bounded run
    prepare: Callable[[Path], Attempt]
    patience: float = 600.0  # seconds that one attempt may take on a busy machine
    parallel: bool = False  # worth several processes, each with preparations of its own
    room: int | None = None  # bytes of memory beside those of the libraries

    @property
    def title(self) -> str:
        """Section and name, by which it is asked for."""
        return f"{self.section}: {self.name}"


@dataclass
class Outcome:
    """What came of a class of faults."""

    tried: int = 0
    told: int = 0  # of them, those in which the user was told something
    work: float = 0.0  # seconds of processor time, with preparations
    slowest: float = 0.0
    peak: int = 0  # bytes of memory more than at the beginning
    said: str = ""  # a line that the user saw
    failures: list[tuple[int, str]] = field(default_factory=list)

    def note(self, seconds: float, said: str | None) -> None:
        """Count one attempt that went as it should."""
        self.slowest = max(self.slowest, seconds)
        if said is not None:
            self.told += 1
            self.said = better(self.said, said)

    def add(self, other: Outcome) -> None:
        """Take in the attempts of another process."""
        self.tried += other.tried
        self.told += other.told
        self.work += other.work
        self.slowest = max(self.slowest, other.slowest)
        self.peak = max(self.peak, other.peak)
        self.said = better(self.said, other.said)
        self.failures += other.failures


def better(kept: str, new: str) -> str:
    """The one of two lines that says more to a reader.

    >>> better("", "classwise: no"), better("x" * 400, "classwise: a.npz is no npz file at all")
    ('classwise: no', 'classwise: a.npz is no npz file at all')
    """

    def fits(words: str) -> bool:
        return SHORTEST <= len(words) <= LONGEST and words.isprintable() and words.isascii()

    return kept if kept and (fits(kept) or not fits(new)) else new


def plain(words: str, place: Path) -> str:
    """One line without what is this machine's own: its folders and its name."""
    text = " ".join(words.split()).replace(f"{place.parent}/{place.name}/", "")
    return text.replace(str(place), ".").replace(socket.gethostname(), "HOST")


def must(holds: bool, words: str) -> None:
    """Say what is wrong; a plain assert would be silent under `python -O`."""
    if not holds:
        raise AssertionError(words)
