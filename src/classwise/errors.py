"""The one exception users meet: it says what was got, what is allowed and what to do."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from pathlib import Path

_OURS = (Path(__file__).parent, Path(importlib.__file__).parent)  # and who imports for us


class ClasswiseError(ValueError):
    """Something the caller can put right; the command line prints it and exits with 2."""


class OwnCodeError(ClasswiseError):
    """Code of the user's own failed; its cause begins in their file, not in ours."""

    @classmethod
    def of(cls, words: str, reason: Exception) -> OwnCodeError:
        """Say what was called, and keep of the reason what the user can put right."""
        trace = reason.__traceback__
        while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
            trace = trace.tb_next
        said = " ".join(f"{type(reason).__name__}: {reason}".split())
        error = cls(f"{words} ({said})")
        error.__cause__ = reason.with_traceback(trace)
        return error


def _is_ours(file: str) -> bool:
    return file.startswith("<frozen importlib") or any(map(Path(file).is_relative_to, _OURS))


def unknown(kind: str, got: str, known: Iterable[str]) -> ClasswiseError:
    """Build the error for a name that is not in a list: the nearest one first, then all of them.

    >>> print(unknown("method", "tradse", ["at", "trades"]))
    unknown method 'tradse'; did you mean 'trades'? Known: at, trades
    """
    names = sorted(known)
    nearest = difflib.get_close_matches(got, names, n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return ClasswiseError(f"unknown {kind} {got!r}; {hint}Known: {', '.join(names)}")
