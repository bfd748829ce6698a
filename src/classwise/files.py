"""Files: written so that a crash leaves the old one or the new one, and known by their content."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path

from classwise.errors import ClasswiseError, cut


def given_path(words: str | Path) -> Path:
    """A path as the user or a file wrote it, which may or may not be there.

    What no system could look at is refused: too long, with a zero byte, of an unknown user.
    """
    try:
        path = Path(words).expanduser()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except RuntimeError:
        raise ClasswiseError(
            f"{cut(words)}: there is no user of that name here; write the path without ~"
        ) from None
    except (OSError, ValueError) as reason:
        why = getattr(reason, "strerror", None) or reason
        raise ClasswiseError(
            f"cannot look at {cut(words)}: {why}; give the path of a file or folder"
        ) from None
    return path


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


def append(path: Path, content: bytes) -> None:
    """Add to the end of a file."""
    try:
        with path.open("ab") as stream:
            stream.write(content)
            stream.flush()
    except OSError as reason:
        raise ClasswiseError(
            f"cannot write {path}: {reason.strerror or reason}; what was written before stays, "
            "make room and go on"
        ) from None


def holds(path: Path, content: bytes) -> bool:
    """Whether a file is there with just these bytes: then nothing need be written.

    A finished audit can so be read in a folder that may not be written.
    """
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_size != len(content):
            return False
        return path.read_bytes() == content
    except OSError:
        return False


def set_aside(path: Path) -> Path:
    """Move a damaged file into `damaged/` beside it, where nobody reads it; nothing is deleted."""
    folder = path.parent / "damaged"
    target, number = folder / path.name, 1
    try:
        folder.mkdir(exist_ok=True)
        while target.exists():
            number += 1
            target = folder / f"{path.stem}-{number}{path.suffix}"
        path.replace(target)
    except OSError as reason:
        raise ClasswiseError(
            f"{path} is damaged and cannot be set aside: {reason.strerror or reason}"
        ) from None
    return target


def file_hash(path: Path) -> str:
    """Sixteen hex digits of a file's content."""
    try:
        with path.open("rb") as stream:  # piece by piece: weights may be larger than the memory
            return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
    except OSError as reason:
        raise ClasswiseError(f"cannot read {path}: {reason.strerror}") from None
