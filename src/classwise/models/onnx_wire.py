"""The bytes of an ONNX file: fields, numbers and tensors, read without believing their sizes.

The format is protobuf: a message is a row of fields, each a number (what it is) and a value. Values
are views of the file, so nothing is taken that the file does not have.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from classwise.errors import ClasswiseError, cut
from classwise.limits import MOST_ONNX_BYTES

KINDS = {  # of tensors, by ONNX's numbers
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    16: torch.bfloat16,
}
_OTHER_KINDS = range(4, 30)  # words, complex numbers, numbers of four bits, …
_FLOATS, _DOUBLES = 4, 10  # fields of a tensor that hold such numbers; the others hold whole ones


class Unreadable(ClasswiseError):
    """Bytes that are no ONNX graph, or one that cannot be right."""


class NotTranslated(Exception):
    """A graph that may well be right, but asks for more than is translated; says for what."""


def fields(view: Any) -> Iterator[tuple[int, Any]]:
    """(number, value) of every field of a message: whole numbers, or views of bytes."""
    if not isinstance(view, memoryview):
        raise Unreadable("a part of it is a number")
    at = 0
    while at < len(view):
        key, at = _number(view, at)
        match key & 7:
            case 0:
                value, at = _number(view, at)
                yield key >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, at = _number(view, at)
            case 5:
                size = 4
            case other:
                raise Unreadable(f"it has a field of kind {other}, which protobuf has not")
        if size > len(view) - at:
            raise Unreadable(f"a part of it claims {size} bytes, and {len(view) - at} are left")
        yield key >> 3, view[at : at + size]
        at += size


def _number(view: memoryview, at: int) -> tuple[int, int]:
    """A whole number of up to ten bytes, seven bits in each, and where it ends."""
    found = shift = 0
    while True:
        byte = view[at]
        at += 1
        found |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return found, at
        if shift > 63:
            raise Unreadable("a number in it has no end")


def words(value: Any) -> str:
    """A name."""
    if not isinstance(value, memoryview):
        raise Unreadable("a name in it is a number")
    return bytes(value).decode()


def integers(value: Any) -> list[int]:
    """One whole number, or many that stand one behind the other.

    >>> integers(memoryview(bytes([1, 2, 0x96, 1])))
    [1, 2, 150]
    """
    if isinstance(value, int):
        return [_signed(value)]
    found, at = [], 0
    while at < len(value):
        number, at = _number(value, at)
        found.append(_signed(number))
    return found


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def floats(value: Any) -> list[float]:
    """One number, or many."""
    return [one[0] for one in struct.iter_unpack("<f", value)]


@dataclass
class Beside:
    """The files beside an ONNX file that hold its weights; no byte of them is given out twice."""

    folder: Path
    taken: dict[Path, int] = field(default_factory=dict)

    def read(self, entry: Mapping[str, str], wanted: int) -> bytes:
        """As many bytes as a tensor wants, from where it says; never from outside the folder."""
        name = entry.get("location", "")
        home = self.folder.resolve()
        try:
            path = (home / name).resolve()
            offset, length = int(entry.get("offset", 0)), int(entry.get("length", wanted))
            inside = path.is_relative_to(home) and path.is_file()
            size = path.stat().st_size if inside else 0
        except (OSError, ValueError):
            raise Unreadable(f"it does not say where the weights in {cut(name)!r} are") from None
        if not inside:
            raise Unreadable(f"its weights are in {cut(name)!r}, which is no file in its folder")
        taken = self.taken[path] = self.taken.get(path, 0) + wanted
        if length != wanted or offset < 0 or offset + length > size or taken > size:
            raise Unreadable(f"its weights do not fit {cut(name)!r}, which has {size} bytes")
        if size > MOST_ONNX_BYTES * 4:
            raise Unreadable(f"{cut(name)!r} has {size} bytes, more than is read")
        with path.open("rb") as stream:
            stream.seek(offset)
            return stream.read(length)


def tensor(view: Any, beside: Beside) -> tuple[str, Tensor]:
    """A tensor and its name, if there are as many bytes as its shape asks for."""
    shape: list[int] = []
    name, number, raw, elsewhere = "", 0, None, False
    spelled: list[tuple[int, Any]] = []
    where: dict[str, str] = {}
    for part, one in fields(view):
        match part:
            case 1:
                shape += integers(one)
            case 2:
                number = one
            case 8:
                name = words(one)
            case 9:
                raw = one
            case 4 | 5 | 7 | 10 | 11:
                spelled.append((part, one))
            case 13:
                entry = dict(fields(one))
                where[words(entry.get(1, _NOTHING))] = words(entry.get(2, _NOTHING))
            case 14:
                elsewhere = one == 1
    kind = KINDS.get(number) if isinstance(number, int) else None
    called = f"tensor {cut(name, 50)!r} of shape {cut(shape, 50)}"
    if kind is None and number in _OTHER_KINDS:
        raise NotTranslated(f"numbers of kind {number}")
    if kind is None:
        raise Unreadable(f"{called} is of kind {cut(number, 50)}, which ONNX has not")
    if any(side < 0 for side in shape):
        raise Unreadable(f"{called} has a side below 0")
    wanted = prod(shape) * kind.itemsize
    if raw is None and not elsewhere:
        raw = _packed(spelled, kind, prod(shape), called)
    elif elsewhere:
        raw = beside.read(where, wanted)
    if not isinstance(raw, bytes | memoryview) or len(raw) != wanted:
        raise Unreadable(f"{called} takes {wanted} bytes, and there are not as many")
    if not wanted:
        return name, torch.empty(shape, dtype=kind)
    return name, torch.frombuffer(bytearray(raw), dtype=kind).reshape(shape)


_NOTHING = memoryview(b"")


def _packed(spelled: list[tuple[int, Any]], kind: torch.dtype, count: int, called: str) -> bytes:
    """Numbers that stand one by one in a tensor's own fields, as its bytes."""
    there = sum(1 if isinstance(one, int) else len(one) for _, one in spelled)
    if there < count:  # every number takes a byte at the least
        raise Unreadable(f"{called} has {count} numbers, and there are not as many")
    found: list[Any] = []
    for part, one in spelled:
        if part == _FLOATS:
            found += floats(one)
        elif part == _DOUBLES:
            found += [value[0] for value in struct.iter_unpack("<d", one)]
        else:
            found += integers(one)
    if kind in (torch.float16, torch.bfloat16):  # their bits, as whole numbers
        kind, found = torch.int16, [one - (1 << 16) * (one >> 15) for one in found]
    values = torch.tensor(found, dtype=kind)
    return values.view(torch.uint8).numpy().tobytes() if len(found) else b""
