"""Images in a file that is mapped into memory: read where they are wanted, never as a whole."""

from __future__ import annotations

import math
import mmap
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Pixels: TypeAlias = NDArray[np.uint8]
Rows: TypeAlias = NDArray[np.int64]
# Looks at what was read for some rows, and puts right in place what is not as it was written.
Watch: TypeAlias = Callable[[Rows, Pixels], None]


class Abandoned(Exception):
    """Images that somebody waits for will never be written."""


class Growing:
    """Which images of a file that is still being written are there, and their checksums."""

    def __init__(self, count: int) -> None:
        self.sums = np.zeros(count, np.uint32)
        self._there = np.zeros(count, bool)
        self._left, self._given_up = count, False
        self._changed = threading.Condition()

    @property
    def whole(self) -> bool:
        """Whether all images are there."""
        return not self._left

    def reach(self, first: int, sums: Sequence[int]) -> None:
        """These images are there from now on."""
        rows = slice(first, first + len(sums))
        with self._changed:
            self.sums[rows] = sums
            self._there[rows] = True
            self._left = int((~self._there).sum())
            self._changed.notify_all()

    def wait(self, rows: Rows) -> None:
        """Wait until these are there; an error if they never will be."""
        if self.whole:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._given_up or bool(self._there[rows].all()))
            if not self._there[rows].all():
                raise Abandoned

    def abandon(self) -> None:
        """Nothing more will come."""
        with self._changed:
            self._given_up = True
            self._changed.notify_all()


@dataclass(frozen=True, eq=False)
class Mapped:
    """Images (n×c×h×w) in a mapped file.

    `watch` sees every image that is read. `known_by` changes whenever the file does; what takes
    long to find out about the images is then kept in `notes`. Images of a file that is `growing`
    are waited for.
    """

    array: Pixels
    watch: Watch | None = None
    known_by: str = ""
    notes: Path | None = None
    growing: Growing | None = None

    def __len__(self) -> int:
        return len(self.array)

    @property
    def shape(self) -> torch.Size:
        """Number, channels, height and width."""
        return torch.Size(self.array.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The kind of a pixel's numbers."""
        return torch.from_numpy(self.array[:0]).dtype

    @property
    def device(self) -> torch.device:
        """A file is read by the host."""
        return torch.device("cpu")

    def __getitem__(self, index: Tensor) -> Tensor:
        """Read the images at `index`, by one thread and without Python's lock."""
        rows = index.numpy()
        if self.growing is not None:
            self.growing.wait(rows)
        self.expect(rows)
        found = np.take(self.array, rows, axis=0)
        if self.watch is not None:
            self.watch(rows, found)
        return torch.from_numpy(found)

    def expect(self, rows: Rows) -> None:
        """Tell the system which images are wanted next, so that it reads them all at once.

        Without it a page is fetched when it is touched, and the disk has one thing to do at a time.
        """
        file, begin = _file_of(self.array)
        if file is None or not hasattr(file, "madvise"):
            return
        size = math.prod(self.array.shape[1:]) * self.array.itemsize
        if size < mmap.PAGESIZE:  # the system reads ahead by more than that anyway
            return
        for place in (begin + rows * size).tolist():
            start = place - place % mmap.PAGESIZE
            file.madvise(mmap.MADV_WILLNEED, start, place + size - start)


def is_mapped(array: NDArray[Any]) -> bool:
    """Whether an array lies in a file rather than in memory."""
    return _file_of(array)[0] is not None


def _file_of(array: NDArray[Any]) -> tuple[mmap.mmap | None, int]:
    """The mapped file that an array lies in, and where in it the array begins."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base.base, mmap.mmap):
            first = np.frombuffer(base.base, np.uint8, 1)
            return base.base, array.ctypes.data - first.ctypes.data
        base = base.base
    return None, 0
