"""What takes long to find out about images in files is found once and noted beside them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from classwise.data.mapped import Mapped
from classwise.data.places import cache_folder
from classwise.data.store import Stored
from classwise.errors import ClasswiseError
from classwise.files import write_atomically
from classwise.sealed import read_sealed, sealed_text
from classwise.terminal import Terminal

LONG = 4 * 10**9  # bytes from which the user wants to know what takes so long
MOST_NOTES = 100  # of one file of images; the oldest go
_ONE_AT_A_TIME = threading.Lock()  # who adds to notes must not lose what another adds
T = TypeVar("T")  # something that JSON gives back as it was


def noted(images: Stored, what: str, more: bytes, find: Callable[[], T]) -> T:
    """What is noted under these words about these very images, or else found and noted.

    Images in memory have no notes, nor have files of which nobody knows whether they changed.
    """
    places = [one for one in images.places if isinstance(one, Mapped) and one.known_by]
    if not places or len(places) < len(images.places) or places[0].notes is None:
        return find()
    digest = hashlib.blake2b(repr((what, images.spare)).encode() + more, digest_size=16)
    digest.update(repr([one.known_by for one in places]).encode())
    if images.rows is not None:
        digest.update(np.ascontiguousarray(images.rows.numpy()).data)
    key, path = digest.hexdigest(), places[0].notes
    before = _read(path)
    if key in before:
        known: T = before[key]
        return known
    written = all(one.growing is None or one.growing.whole for one in places)
    if images.nbytes > LONG and written:
        words = f"{images.nbytes / 1e9:.0f} GB are read once for their {what}, which is noted then"
        Terminal(stderr=True).print(words, highlight=False)
    found = find()
    with _ONE_AT_A_TIME, contextlib.suppress(ClasswiseError):
        kept = dict(list({**_read(path), key: found}.items())[-MOST_NOTES:])
        write_atomically(path, sealed_text(kept))  # or, where nobody may, it is found anew
    return found


def notes_of(array: NDArray[Any]) -> tuple[str, Path | None]:
    """What tells the file of a mapped array from any other and from itself changed; its notes."""
    file = getattr(array, "filename", None)
    if file is None:
        return "", None
    found, path = os.stat(file), Path(file).resolve()
    known_by = f"{path} {found.st_size} {found.st_mtime_ns}"
    key = hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()
    return known_by, cache_folder() / "notes" / f"{key}.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_sealed(path, "it is made anew") if path.exists() else {}
    except (ClasswiseError, OSError):
        return {}
