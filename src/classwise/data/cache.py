"""Decoded pictures in a folder of their own, made once and mapped by every later command.

One file holds the images, cut into shards of some hundred; a line of a log says that a shard is
done, with a checksum of every image. So a kill costs the shards that were being decoded. The
folder belongs to the pictures' own folder and the way they are decoded; names, sizes and times of
all files say whether it is still theirs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from classwise.data.decoding import Shard, Target
from classwise.data.mapped import Growing, Mapped
from classwise.data.mending import Mending
from classwise.data.pictures import Fit, pillow
from classwise.data.places import cache_folder
from classwise.errors import ClasswiseError
from classwise.files import append, write_atomically
from classwise.locks import FolderLock
from classwise.sealed import Damaged, read_sealed, seal, sealed_text, unseal

FORMAT = 1
ABOUT, IMAGES, LOG, NOTES = "about.json", "images.bin", "shards.jsonl", "notes.json"
ROWS, BYTES = 128, 1 << 26  # the most images, and about the most bytes, of a shard
MOST_LOG = 1 << 32  # bytes of a log: room for 100 million images
MOST_LINE = 1 << 20  # bytes of one of its lines
LEFT = 1 << 26  # bytes of a disk that are not for us, and as many again as we take, up to
LEFT_MOST = 1 << 30
_STALE = "it is made anew"


class NoCache(Exception):
    """Decoded pictures cannot be kept here, with the reason in a few words."""


@dataclass(frozen=True)
class Pictures:
    """Files, and how they become images of one size (height, width; None: that which they have)."""

    root: Path
    files: Sequence[Path]
    size: tuple[int, int] | None
    fit: Fit
    whose: str = ""  # tells lists of files in the same folder apart

    @cached_property
    def place(self) -> Path:
        """The folder of these pictures in the cache."""
        root = self.root.resolve()
        facts = repr((FORMAT, str(root), self.whose, self.size, self.fit))
        name = "".join(letter if letter.isalnum() else "-" for letter in root.name)[:40]
        key = hashlib.blake2b(facts.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
        return pictures_folder() / f"{name or 'pictures'}-{key}"

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the name, size or time of any file, and with what decodes them."""
        digest = hashlib.blake2b(f"{pillow('images').__version__}\n".encode(), digest_size=16)
        begin = f"{self.root}{os.sep}"
        for file in self.names:
            try:
                found = os.stat(file)
                facts = f"{found.st_size} {found.st_mtime_ns}"
            except OSError as reason:
                facts = str(reason.errno)
            line = f"{file.removeprefix(begin)}\0{facts}\n"
            digest.update(line.encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    @cached_property
    def names(self) -> list[str]:
        """The files as text, which is quicker to handle."""
        return [str(file) for file in self.files]


@dataclass
class Cache:
    """The folder of some pictures: how much of them is decoded, and where."""

    pictures: Pictures
    box: tuple[int, int] | None = None  # of the images; None while nobody knows it
    shards: dict[int, Shard] = field(default_factory=dict)  # by first row, those that are done

    @classmethod
    def of(cls, pictures: Pictures) -> Cache:
        """What is there; nothing where it is of other files, or not as it was written."""
        found, place = cls(pictures), pictures.place
        try:
            about = read_sealed(place / ABOUT, _STALE)
            height, width = about["box"]
            box = (int(height), int(width))
            right = about["fingerprint"] == pictures.fingerprint and about["format"] == FORMAT
            if right and (place / IMAGES).stat().st_size == len(pictures.files) * 3 * math.prod(
                box
            ):
                found.box = box
                found.shards = {one.first: one for one in _lines(place / LOG)}
        except (ClasswiseError, OSError, KeyError, TypeError, ValueError):
            return cls(pictures)
        return found

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Number, channels, height and width of the images."""
        assert self.box is not None
        return len(self.pictures.files), 3, *self.box

    @property
    def nbytes(self) -> int:
        """Bytes of all images."""
        return math.prod(self.shape)

    @property
    def step(self) -> int:
        """Images of a shard."""
        return max(1, min(ROWS, BYTES // math.prod(self.shape[1:])))

    @property
    def missing(self) -> list[int]:
        """First rows of the shards that are still to be decoded."""
        count = len(self.pictures.files)
        firsts = range(0, count, self.step)
        return [one for one in firsts if len(self._sums(one)) != min(self.step, count - one)]

    def _sums(self, first: int) -> list[int]:
        return self.shards[first].sums if first in self.shards else []

    @property
    def complete(self) -> bool:
        """Whether every picture has been looked at."""
        return self.box is not None and not self.missing

    def lock(self) -> FolderLock:
        """One decodes, and whoever wants the same pictures waits for it."""
        return FolderLock(self.pictures.place, "decoding pictures", wait=True)

    def begin(self, box: tuple[int, int]) -> Target:
        """Make room for all images, or go on with what is there."""
        place = self.pictures.place
        begun, self.box = self.box == box, box
        target = Target(str(place / IMAGES), self.shape, self.pictures.fit)
        if begun:
            append(place / LOG, b"\n")  # the last line may have been torn
            return target
        self.shards = {}
        for name in (ABOUT, LOG, NOTES, IMAGES):  # whoever has the old file mapped keeps it
            (place / name).unlink(missing_ok=True)
        _reserve(place / IMAGES, self.nbytes)
        about = {
            "format": FORMAT,
            "fingerprint": self.pictures.fingerprint,
            "box": box,
            "fit": self.pictures.fit,
            "root": os.fsencode(self.pictures.root.resolve()).decode("utf-8", "replace"),
            "images": len(self.pictures.files),
        }
        write_atomically(place / ABOUT, sealed_text(about))
        return target

    def add(self, shard: Shard) -> None:
        """Write down that a shard is done."""
        said = {"first": shard.first, "sums": shard.sums, "kinds": shard.kinds, "bad": shard.bad}
        append(self.pictures.place / LOG, (json.dumps(seal(said)) + "\n").encode())
        self.shards[shard.first] = shard

    def mapped(self, growing: Growing | None = None) -> Mapped:
        """The images, each verified when it is first read; of some that are `growing`, also now."""
        place = self.pictures.place
        # "c": changes stay in memory; torch warns about arrays it may not write to.
        array: NDArray[np.uint8] = np.memmap(place / IMAGES, np.uint8, "c", shape=self.shape)
        if growing is None:
            firsts = range(0, len(self.pictures.files), self.step)
            every = [one for first in firsts for one in self.shards[first].sums]
            sums = np.array(every, np.uint32)
        else:
            sums = growing.sums
        mending = Mending(place / IMAGES, sums, self.pictures)
        return Mapped(array, mending, self.pictures.fingerprint, place / NOTES, growing)


def check_room(place: Path, size: int) -> None:
    """Refuse what the disk cannot hold, or may not."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(place).free
        probe = place / f".{os.getpid()}.part"
        probe.touch()
        probe.unlink()
    except OSError as reason:
        raise NoCache(f"{place}: {reason.strerror or reason}") from None
    if free < size + LEFT + min(size, LEFT_MOST):  # a full disk is a nuisance for everybody
        raise NoCache(f"{place} has {free / 1e9:.1f} GB free, and {size / 1e9:.1f} GB are needed")


def pictures_folder() -> Path:
    """Where all decoded pictures are."""
    return cache_folder() / "pictures"


@dataclass(frozen=True)
class Entry:
    """One folder of the cache, as a list shows it."""

    place: Path
    root: str
    images: int
    box: tuple[int, int]
    nbytes: int  # on the disk


def entries() -> list[Entry]:
    """All folders of decoded pictures; what cannot be read is shown as empty."""
    found = []
    for place in sorted(pictures_folder().glob("*-*")) if pictures_folder().is_dir() else []:
        if not place.is_dir() or place.is_symlink():
            continue
        try:
            about: dict[str, Any] = read_sealed(place / ABOUT, _STALE)
            root, images = str(about["root"]), int(about["images"])
            box = (int(about["box"][0]), int(about["box"][1]))
        except (ClasswiseError, OSError, KeyError, TypeError, ValueError, IndexError):
            root, images, box = "", 0, (0, 0)
        found.append(Entry(place, root, images, box, _used(place)))
    return found


def clear(entry: Entry) -> None:
    """Remove one, unless somebody is decoding into it; whoever has it mapped keeps it mapped."""
    with FolderLock(entry.place, "clearing the cache"):
        for file in entry.place.iterdir():
            if file.name in (ABOUT, IMAGES, LOG, NOTES) or file.name.endswith(".part"):
                file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # something of the user's own is in there
        entry.place.rmdir()


def _used(place: Path) -> int:
    total = 0
    for name in (ABOUT, IMAGES, LOG, NOTES):
        with contextlib.suppress(OSError):
            found = (place / name).lstat()
            total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total


def _reserve(path: Path, size: int) -> None:
    """A file of this size; a full disk must be an error here, not a crash when it is mapped."""
    try:
        with path.open("xb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
    except OSError as reason:
        path.unlink(missing_ok=True)
        raise NoCache(f"{path.parent}: {reason.strerror or reason}") from None


def _lines(path: Path) -> Iterator[Shard]:
    """What the log holds; a line that was torn or damaged is as if its shard were not done."""
    if not path.exists() or path.stat().st_size > MOST_LOG:
        return
    with path.open("rb") as stream:
        for line in iter(lambda: stream.readline(MOST_LINE), b""):
            with contextlib.suppress(Damaged, KeyError, TypeError, ValueError):
                yield Shard.read(unseal(line))
