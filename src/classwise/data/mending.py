"""An image of the cache is verified when it is first read, and decoded again if it is damaged."""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from classwise.data.mapped import Pixels, Rows
from classwise.data.pictures import Fit, NotAnImage, read_picture
from classwise.errors import ClasswiseError
from classwise.terminal import Terminal


class Origin(Protocol):
    """Where images came from."""

    @property
    def files(self) -> Sequence[Path]:
        """The file of every row."""

    @property
    def fit(self) -> Fit:
        """How it became an image."""


class Mending:
    """Checksums of the images of one file, which no image passes unseen.

    An image costs a checksum once per process, on the thread that reads it. One that is not as it
    was written, by a disk or a crash, is decoded again and put back.
    """

    def __init__(self, path: Path, sums: NDArray[np.uint32], origin: Origin) -> None:
        self.sums, self.origin = sums, origin
        self._path, self._inode = path, path.stat().st_ino
        self._verified = np.zeros(len(sums), bool)
        self._one_at_a_time = threading.Lock()

    def __call__(self, rows: Rows, images: Pixels) -> None:
        """Verify what was read, and replace in it what is damaged."""
        new = np.flatnonzero(~self._verified[rows])
        for place in new.tolist():
            if zlib.crc32(images[place].data) != self.sums[rows[place]]:
                self._mend(int(rows[place]), images[place])
        self._verified[rows[new]] = True

    def _mend(self, row: int, image: Pixels) -> None:
        file = self.origin.files[row]
        again = f"{file} in {self._path} is damaged and cannot be decoded again"
        try:
            image[:] = read_picture(file, (image.shape[1], image.shape[2]), self.origin.fit)[0]
        except NotAnImage as reason:
            raise ClasswiseError(
                f"{again} ({reason}); run `classwise data cache --clear`"
            ) from None
        if zlib.crc32(image.data) != self.sums[row]:
            raise ClasswiseError(f"{again}: the file has changed; repeat the command")
        with self._one_at_a_time, contextlib.suppress(OSError):  # nobody may write there
            # The folder may hold another file by now, of changed pictures.
            if self._path.exists() and self._path.stat().st_ino == self._inode:
                with self._path.open("r+b") as stream:
                    stream.seek(row * image.nbytes)
                    stream.write(image.tobytes())
        words = f"{file} was damaged in {self._path.parent} and is decoded again"
        Terminal(stderr=True).print(words, soft_wrap=True, highlight=False, markup=False)
