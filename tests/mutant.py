"""One wrong line of code, and who must notice it."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """One wrong line of code."""

    file: str  # in src/classwise
    before: str  # stands there exactly once
    after: str
    tests: tuple[str, ...]  # files or node ids under tests/
    why: str  # what a user would suffer
