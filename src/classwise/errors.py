"""The one exception users meet: it says what was got, what is allowed and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ClasswiseError(ValueError):
    """Something the caller can put right; the command line prints it and exits with 2."""


def unknown(kind: str, got: str, known: Iterable[str]) -> ClasswiseError:
    """Build the error for a name that is not in a list: the nearest one first, then all of them.

    >>> print(unknown("method", "tradse", ["at", "trades"]))
    unknown method 'tradse'; did you mean 'trades'? Known: at, trades
    """
    names = sorted(known)
    nearest = difflib.get_close_matches(got, names, n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return ClasswiseError(f"unknown {kind} {got!r}; {hint}Known: {', '.join(names)}")
