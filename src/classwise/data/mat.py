"""MATLAB files of version 5: plain arrays, texts and tables of these; no code, no objects.

Sizes are checked before memory is taken: an array must be as large as its dimensions say, and what
is compressed is unpacked no further than its head claims.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from classwise.errors import ClasswiseError, cut
from classwise.limits import DEEPEST
from classwise.limits import MOST_FILE_BYTES as LARGEST

HEAD = 128  # bytes before the first element
PACKED, MATRIX = 15, 14  # kinds of elements
# Kinds of numbers by the number that stands for them in a file.
NUMBERS = {
    **{1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"},
    16: "u1",  # UTF-8
    17: "u2",  # UTF-16
}
CELL, STRUCT, TEXT = 1, 2, 4  # kinds of arrays; 6 to 15 are numbers, others are refused
ARRAYS = {
    **{6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4"},
    **{14: "i8", 15: "u8"},
}
HDF5 = b"\x89HDF\r\n\x1a\n"
MOST_PARTS = 1_000_000  # cells and fields of one file


def read_mat(content: bytes, name: str) -> dict[str, Any]:
    """The variables of a file: arrays, text, a cell array as a list, a table as a list of dicts."""
    if content[:10] == b"MATLAB 7.3" or HDF5 in content[:1024]:
        raise ClasswiseError(
            f"{name} is a MATLAB file of version 7.3, which is HDF5; save it with -v7, or open it "
            "with h5py and store an .npz"
        )
    if len(content) < HEAD or content[126:128] not in (b"IM", b"MI"):
        raise ClasswiseError(f"{name} is no MATLAB file of version 5; get it anew")
    order = "<" if content[126:128] == b"IM" else ">"
    reader = _Reader(order, name)
    try:
        return dict(reader.variables(content[HEAD:]))
    except (struct.error, zlib.error, UnicodeDecodeError, ValueError) as reason:
        if isinstance(reason, ClasswiseError):
            raise
        raise reader.bad(cut(reason)) from None


@dataclass
class _Reader:
    """Reads elements in one byte order, and counts what it has read."""

    order: str
    name: str
    parts: int = 0

    def bad(self, words: str) -> ClasswiseError:
        return ClasswiseError(f"{self.name}: {words}; it is damaged or made up, get it anew")

    def variables(self, content: bytes) -> Iterator[tuple[str, Any]]:
        at = 0
        while at < len(content):
            kind, data, at = self.element(content, at)
            if kind == PACKED:
                kind, data = self.unpacked(data)
            if kind == MATRIX and len(data):
                yield self.matrix(data, 0)

    def element(self, content: bytes, at: int) -> tuple[int, bytes, int]:
        """Kind and bytes of the element at a place, and where the next one begins."""
        (first,) = struct.unpack_from(f"{self.order}I", content, at)
        if first >> 16:  # four bytes or fewer stand inside of the head
            kind, size, begin, step = first & 0xFFFF, first >> 16, at + 4, 8
            if size > 4:
                raise self.bad(f"a short element claims {size} bytes")
            return kind, content[begin : begin + size], at + step
        kind, size = struct.unpack_from(f"{self.order}II", content, at)
        begin = at + 8
        if size > len(content) - begin:
            raise self.bad(f"an element claims {size} bytes, but {len(content) - begin} are left")
        step = size if kind == PACKED else -(-size // 8) * 8
        return kind, content[begin : begin + size], begin + step

    def unpacked(self, data: bytes) -> tuple[int, bytes]:
        """Unpack one element, no further than its own head says."""
        stream = zlib.decompressobj()
        head = stream.decompress(data, 8)
        kind, size = struct.unpack(f"{self.order}II", head)
        if size > LARGEST:
            raise self.bad(f"a compressed element claims {size} bytes; {LARGEST} are the most")
        content = stream.decompress(stream.unconsumed_tail, size) if size else b""
        if len(content) != size:
            raise self.bad(f"a compressed element claims {size} bytes, but has {len(content)}")
        return kind, content

    def matrix(self, data: bytes, depth: int) -> tuple[str, Any]:
        """Name and value of an array."""
        self.parts += 1
        if self.parts > MOST_PARTS or depth > DEEPEST:
            raise self.bad("there are more cells in cells than anybody nests")
        _, flags, at = self.element(data, 0)
        _, sides, at = self.element(data, at)
        _, word, at = self.element(data, at)
        kind = struct.unpack_from(f"{self.order}I", flags)[0]
        shape = tuple(int(side) for side in np.frombuffer(sides, f"{self.order}i4"))
        name = word.decode("ascii")
        if len(shape) < 2 or min(shape) < 0 or math.prod(shape) > LARGEST:
            raise self.bad(f"the array {cut(name, 50)!r} claims the shape {cut(shape, 80)}")
        found = kind & 0xFF
        if found in ARRAYS and not kind & 0x0800:  # a flag: complex numbers
            return name, self.numbers(data, at, shape, ARRAYS[found], name)
        if found == TEXT:
            return name, self.text(data, at, shape, name)
        if found in (CELL, STRUCT):
            return name, self.table(data, at, math.prod(shape), depth, found == STRUCT)
        raise self.bad(
            f"{cut(name, 50)!r} is neither numbers, nor text, nor a table (kind {found})"
        )

    def numbers(
        self, data: bytes, at: int, shape: tuple[int, ...], kind: str, name: str
    ) -> NDArray[Any]:
        """An array as it stands, first index fastest; it may be stored in fewer bytes."""
        stored, content, _ = self.element(data, at)
        if stored not in NUMBERS:
            raise self.bad(f"{cut(name, 50)!r} holds elements of kind {stored}")
        form = np.dtype(f"{self.order}{NUMBERS[stored]}")
        if math.prod(shape) * form.itemsize != len(content):
            raise self.bad(
                f"{cut(name, 50)!r} claims {' × '.join(map(str, shape))} numbers, but has "
                f"{len(content)} bytes"
            )
        flat = np.frombuffer(content, form)
        return flat.astype(np.dtype(kind), copy=False).reshape(shape, order="F")

    def text(self, data: bytes, at: int, shape: tuple[int, ...], name: str) -> str:
        stored, content, _ = self.element(data, at)
        if stored == 16:
            return content.decode("utf-8")
        letters = self.numbers(data, at, shape, "u4", name).ravel(order="F")
        return "".join(map(chr, letters.tolist()))

    def table(self, data: bytes, at: int, count: int, depth: int, fields: bool) -> list[Any]:
        """Cells one after the other; of a struct array a dict for each element."""
        names = [""]
        if fields:
            _, width, at = self.element(data, at)
            _, words, at = self.element(data, at)
            (size,) = struct.unpack(f"{self.order}i", width)
            if size < 1 or len(words) % size:
                raise self.bad("the names of fields do not fit")
            cuts = (words[k : k + size] for k in range(0, len(words), size))
            names = [word.split(b"\0")[0].decode("ascii") for word in cuts]
        if count * len(names) > len(data) // 8:  # every part has a head of eight bytes
            raise self.bad(f"a table claims {count} parts, which cannot be inside")
        found: list[Any] = []
        for _ in range(count):
            entry = {}
            for name in names:
                kind, part, at = self.element(data, at)
                if kind != MATRIX:
                    raise self.bad(f"a table holds an element of kind {kind}")
                entry[name] = self.matrix(part, depth + 1)[1] if part else None
            found.append(entry if fields else entry[""])
        return found
