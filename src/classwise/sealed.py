"""JSON that carries a checksum of itself, so that damage is noticed when it is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from classwise.errors import ClasswiseError
from classwise.limits import MOST_BYTES
from classwise.texts import parse_json, read_some

SEAL = "checksum"
_KINDS = {list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false"}
BY_HAND = f'if you changed it yourself, delete its entry "{SEAL}"'


class Damaged(ClasswiseError):
    """A file is not as it was written."""


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """Add the checksum.

    >>> seal({"epoch": 1})
    {'epoch': 1, 'checksum': 'e1c108e267ec34cf'}
    """
    plain = json.loads(json.dumps(content))  # as it will be read: keys are text, tuples are lists
    return {**plain, SEAL: _checksum(plain)}


def unseal(text: str | bytes) -> dict[str, Any]:
    """Read an object and verify its checksum; one without is taken as it is.

    >>> unseal('{"epoch": 1, "checksum": "e1c108e267ec34cf"}'), unseal('{"epoch": 2}')
    ({'epoch': 1}, {'epoch': 2})
    >>> unseal('{"epoch": 2, "checksum": "e1c108e267ec34cf"}')
    Traceback (most recent call last):
    classwise.sealed.Damaged: does not match its own checksum
    """
    try:
        found = parse_json(text.decode() if isinstance(text, bytes) else text, "")
    except UnicodeDecodeError as reason:
        raise Damaged(f"has a byte that is no UTF-8 at {reason.start}") from None
    except ClasswiseError as reason:
        raise Damaged(str(reason).strip()) from None
    if not isinstance(found, dict):
        raise Damaged(f"is no object but {_KINDS.get(type(found), 'something else')}")
    said = found.pop(SEAL, None)
    if said is not None and said != _checksum(found):
        raise Damaged("does not match its own checksum")
    return found


def read_sealed(path: Path, remedy: str, most: int = MOST_BYTES) -> dict[str, Any]:
    """Read a file that is one object; `remedy` tells what to do if it is damaged."""
    try:
        return unseal(read_some(path, most))
    except OSError as reason:
        raise ClasswiseError(f"{path} cannot be read: {reason.strerror or reason}") from None
    except Damaged as reason:
        raise Damaged(f"{path} cannot be read: it {reason}; {remedy}") from None


def sealed_text(content: Mapping[str, Any], indent: int | None = 1) -> bytes:
    """The bytes of such a file."""
    return (json.dumps(seal(content), indent=indent) + "\n").encode()


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
