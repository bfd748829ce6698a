"""Texts that strangers wrote, JSON or TOML: read only as far as they are short and shallow."""

from __future__ import annotations

import json
import stat
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

from classwise.errors import ClasswiseError, cut
from classwise.limits import DEEPEST, LARGEST_NUMBER, MOST_BYTES


def read_some(path: Path, most: int = MOST_BYTES) -> bytes:
    """What a file of at most so many bytes holds; an OSError is left to the caller."""
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for, a device has no end
        raise ClasswiseError(f"{path} is no plain file; give one")
    with path.open("rb") as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise ClasswiseError(f"{path} has more than {most >> 20} MB; no such file of ours has")
    return content


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """The text of such a file."""
    content = read_some(path, most)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as reason:
        raise ClasswiseError(
            f"{path} is not text in UTF-8 (byte {reason.start} is {content[reason.start]:#04x})"
        ) from None


def parse_json(text: str, where: object) -> Any:
    """Read JSON; what is too deep, or holds half a character, is refused.

    >>> parse_json('{"a": [1]}', "card")
    {'a': [1]}
    >>> parse_json("[" * 99 + "]" * 99, "card")
    Traceback (most recent call last):
    classwise.errors.ClasswiseError: card has brackets within brackets deeper than 20
    """
    try:
        found = json.loads(text)
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError as reason:  # also a number of more digits than Python reads
        raise ClasswiseError(f"{where} is not JSON: {cut(reason)}") from None
    check_plain(found, where)
    return found


def parse_toml(text: str, where: object) -> dict[str, Any]:
    """Read TOML under the same limits.

    >>> parse_toml("a = 1", "contract")
    {'a': 1}
    """
    # Keys such as a.a.a.… are followed letter by letter, which takes long before it goes wrong.
    if any(line.partition("=")[0].count(".") > DEEPEST for line in text.splitlines()):
        raise _too_deep(where)
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError as reason:
        raise ClasswiseError(f"{where} is not TOML: {cut(reason)}") from None
    check_plain(found, where)
    return found


def check_plain(found: Any, where: object) -> None:
    """Refuse what is nested too deep, too large a number, and text that cannot be written."""
    level = [found]
    for _ in range(DEEPEST + 1):
        try:
            "".join(one for one in level if isinstance(one, str)).encode()
        except UnicodeEncodeError as reason:
            half = ascii(reason.object[reason.start])[1:-1]
            raise ClasswiseError(
                f"{where} holds half a character ({half}), which no text can hold; write it anew"
            ) from None
        if any(isinstance(one, int) and abs(one) > LARGEST_NUMBER for one in level):
            raise ClasswiseError(
                f"{where} holds a number beyond ±{LARGEST_NUMBER}; none of ours is"
            )
        level = [child for one in level if isinstance(one, list | dict) for child in _inside(one)]
        if not level:
            return
    raise _too_deep(where)


def _inside(one: list[Any] | dict[str, Any]) -> Any:
    return chain(one, one.values()) if isinstance(one, dict) else one


def _too_deep(where: object) -> ClasswiseError:
    return ClasswiseError(f"{where} has brackets within brackets deeper than {DEEPEST}")
