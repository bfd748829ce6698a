"""A reader for the official pickles that can build plain values and byte arrays, nothing else."""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from classwise.errors import ClasswiseError, cut


class _Dtype:
    """Stands in for numpy.dtype; only bytes (`u1`) are let through."""

    def __init__(self, name: Any, *_: Any) -> None:
        if name not in ("u1", b"u1"):
            got = repr(name) if isinstance(name, str | bytes) else type(name).__name__
            raise pickle.UnpicklingError(f"an array of {cut(got)}; only bytes (u1) are allowed")

    def __setstate__(self, state: Any) -> None:
        """Take no state: byte order and alignment mean nothing for single bytes."""


class _Array:
    """Stands in for numpy.ndarray, so that a pickle runs no code of numpy's."""

    values: NDArray[np.uint8]

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, by_columns, content = state
        if not (isinstance(dtype, _Dtype) and isinstance(content, bytes)):
            raise pickle.UnpicklingError("an array that is not made of plain bytes")
        whole = all(type(n) is int and 0 <= n <= len(content) for n in shape)
        if not whole or len(shape) > MOST_DIMENSIONS:
            raise pickle.UnpicklingError(f"an array of {len(content)} bytes with no such shape")
        if len(content) != math.prod(shape):
            raise pickle.UnpicklingError(f"{len(content)} bytes for an array of shape {shape}")
        flat = np.frombuffer(content, np.uint8)
        self.values = flat.reshape(shape[::-1]).T if by_columns else flat.reshape(shape)


def _reconstruct(kind: Any, *_: Any) -> _Array:
    if kind is not _Array:
        raise pickle.UnpicklingError("an array of an unknown kind")
    return _Array()


MOST_DIMENSIONS = 8  # of an array
MOST_CONTAINERS = 1000  # the official files have a dozen
CONTAINERS = {
    *("EMPTY_LIST", "EMPTY_DICT", "EMPTY_TUPLE", "LIST", "DICT"),
    *("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
}
# What a pickle may do; a step that is not here could make much out of little.
CODES = CONTAINERS | {
    *("PROTO", "FRAME", "MARK", "STOP", "NONE", "NEWTRUE", "NEWFALSE"),
    *("INT", "LONG", "LONG1", "BININT", "BININT1", "BININT2", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE"),
    *("BINBYTES", "SHORT_BINBYTES", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD"),
    *("APPEND", "APPENDS", "SETITEM", "SETITEMS"),
    *("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET"),
}
ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for an outside object ({type(pid).__name__})")


def _look_through(content: bytes) -> None:
    """Refuse a pickle that would take more memory than it has bytes, before it is obeyed.

    What it names must stand in it, its memory has no holes, and it has few lists and tuples, so
    that nothing is nested deep.
    """
    containers = 0
    for steps, (code, argument, _) in enumerate(pickletools.genops(content), 1):
        if code.name not in CODES:
            raise pickle.UnpicklingError(f"it has the step {code.name}, which no official file has")
        containers += code.name in CONTAINERS
        if containers > MOST_CONTAINERS:
            raise pickle.UnpicklingError(f"it makes more than {MOST_CONTAINERS} lists or tuples")
        if code.name in ("PUT", "BINPUT", "LONG_BINPUT") and (argument or 0) > steps:
            raise pickle.UnpicklingError(f"it has {steps} things and numbers one {argument}")


def read_pickle(content: bytes, what: str) -> dict[str, Any]:
    """Read a pickled dictionary of lists, strings and byte arrays.

    >>> read_pickle(pickle.dumps({"labels": [6, 9]}, protocol=2), "batch")
    {'labels': [6, 9]}
    >>> read_pickle(pickle.dumps(print), "batch")
    Traceback (most recent call last):
    classwise.errors.ClasswiseError: batch is refused: it asks for builtins.print
    """
    try:
        _look_through(content)
        found = _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as reason:  # a crafted pickle may raise anything
        words = cut(str(reason)) or "it is no pickle"
        raise ClasswiseError(f"{what} is refused: {words}") from None
    if not isinstance(found, dict):
        raise ClasswiseError(f"{what} is refused: it holds a {type(found).__name__}, not a dict")
    return {_text(key): _plain(value) for key, value in found.items()}


def _plain(value: Any) -> Any:
    """Turn stand-ins into arrays, and byte strings (as Python 2 wrote them) into text."""
    if isinstance(value, _Array):
        return value.values
    if isinstance(value, list):
        return [_text(item) if isinstance(item, bytes) else item for item in value]
    return _text(value) if isinstance(value, bytes) else value


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
