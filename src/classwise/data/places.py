"""Which folders hold data: the user's own ($CLASSWISE_DATA) and a cache."""

from __future__ import annotations

import os
from pathlib import Path

from classwise.files import given_path

ANY_WRITE = 0o222


def data_folder() -> Path | None:
    """The folder $CLASSWISE_DATA points to, if it is set."""
    named = os.environ.get("CLASSWISE_DATA", "").strip()
    return given_path(named) if named else None


def cache_folder() -> Path:
    """$CLASSWISE_CACHE, else `classwise` in the user's cache folder."""
    named = os.environ.get("CLASSWISE_CACHE", "").strip()
    if named:
        return given_path(named)
    base = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(base) if base else Path.home() / ".cache") / "classwise"


def look_in() -> list[Path]:
    """Folders in which data sets are looked for, in this order."""
    own = data_folder()
    return [*([own] if own else []), cache_folder()]


def put_into() -> Path:
    """The folder for new data: $CLASSWISE_DATA where it may be written, else the cache."""
    own = data_folder()
    if own and not os.environ.get("CLASSWISE_CACHE") and _writable(own):
        return own
    return cache_folder()


def _writable(folder: Path) -> bool:
    # The mode is asked too, because for root every folder counts as writable.
    access = folder.is_dir() and os.access(folder, os.W_OK)
    return access and bool(folder.stat().st_mode & ANY_WRITE)
