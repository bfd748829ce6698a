"""Writing files so that a crash leaves the old one or the new one, never half of one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from classwise.errors import ClasswiseError


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the target, flush to disk, then rename over it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except OSError as reason:
        _forget(part)
        raise ClasswiseError(f"cannot write {path}: {reason.strerror or reason}") from None
    except BaseException:
        _forget(part)
        raise


def _forget(part: Path) -> None:
    """Remove what was begun, if it is there at all."""
    with contextlib.suppress(OSError):
        part.unlink()
