"""A reader for the official pickles that can build plain values and byte arrays, nothing else."""

from __future__ import annotations

import io
import math
import pickle
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from classwise.errors import ClasswiseError


class _Dtype:
    """Stands in for numpy.dtype; only bytes (`u1`) are let through."""

    def __init__(self, name: Any, *_: Any) -> None:
        if name not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"an array of {name!r}; only bytes (u1) are allowed")

    def __setstate__(self, state: Any) -> None:
        """Take no state: byte order and alignment mean nothing for single bytes."""


class _Array:
    """Stands in for numpy.ndarray, so that a pickle runs no code of numpy's."""

    values: NDArray[np.uint8]

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, by_columns, content = state
        whole = all(isinstance(n, int) and n >= 0 for n in shape)
        if not (isinstance(dtype, _Dtype) and isinstance(content, bytes) and whole):
            raise pickle.UnpicklingError("an array that is not made of plain bytes")
        if len(content) != math.prod(shape):
            raise pickle.UnpicklingError(f"{len(content)} bytes for an array of shape {shape}")
        flat = np.frombuffer(content, np.uint8)
        self.values = flat.reshape(shape[::-1]).T if by_columns else flat.reshape(shape)


def _reconstruct(kind: Any, *_: Any) -> _Array:
    if kind is not _Array:
        raise pickle.UnpicklingError("an array of an unknown kind")
    return _Array()


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
        raise pickle.UnpicklingError(f"it asks for an outside object {pid!r}")


def read_pickle(content: bytes, what: str) -> dict[str, Any]:
    """Read a pickled dictionary of lists, strings and byte arrays.

    >>> read_pickle(pickle.dumps({"labels": [6, 9]}, protocol=2), "batch")
    {'labels': [6, 9]}
    >>> read_pickle(pickle.dumps(print), "batch")
    Traceback (most recent call last):
    classwise.errors.ClasswiseError: batch is refused: it asks for builtins.print
    """
    try:
        found = _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as reason:  # a crafted pickle may raise anything
        raise ClasswiseError(f"{what} is refused: {reason or 'it is no pickle'}") from None
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
