"""The one exception users meet: it says what was got, what is allowed and what to do."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable
from pathlib import Path

_OURS = (Path(__file__).parent, Path(importlib.__file__).parent)  # and who imports for us

# Control codes but for tab and line feed, halves of characters, and marks that turn the direction
# of writing: a terminal or a reader would be told something else than what stands there.
_TREACHEROUS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_SHOWN = 200  # letters of a name in a message


def defused(text: str) -> str:
    r"""Text in which control codes and halves of characters are visible instead of obeyed.

    >>> print(defused("a\x1b[2Jb\udcff"))
    a\x1b[2Jb\udcff
    """
    return _TREACHEROUS.sub(lambda mark: ascii(mark[0])[1:-1], text)


def cut(text: object, most: int = _SHOWN) -> str:
    """Text for a message, no longer than so many letters.

    >>> cut("a" * 9, 4)
    'aaa…'
    """
    words = str(text)
    return words if len(words) <= most else f"{words[: most - 1]}…"


class ClasswiseError(ValueError):
    """Something the caller can put right; the command line prints it and exits with 2."""

    def __init__(self, words: str) -> None:
        # Names come from strangers' files: no message may speak to the terminal.
        super().__init__(defused(words))


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
    >>> print(unknown("method", "TRADES", ["at", "trades"]))
    unknown method 'TRADES'; did you mean 'trades'? Known: at, trades
    """
    names, said = sorted(set(known)), cut(got)
    small = {name.lower(): name for name in names}  # people may shout
    nearest = difflib.get_close_matches(said.lower(), small, n=1)
    hint = f"did you mean {small[nearest[0]]!r}? " if nearest else ""
    return ClasswiseError(f"unknown {kind} {said!r}; {hint}Known: {', '.join(names)}")
