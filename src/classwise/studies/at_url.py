"""Runs of studies that are kept at a URL, such as s3://bucket/runs.

A worker brings its run here, works in a folder of its own, and takes it back. At the URL a run is
`NAME/files.json`, which names its files with their digests, and `NAME/data/`, which holds them by
digest. Data are written first and files.json last, so that whoever reads finds the run as it was
before or as it is now, and never a part of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import threading
import uuid
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from classwise.errors import ClasswiseError, cut
from classwise.files import given_path, write_atomically
from classwise.sealed import Damaged, sealed_text, unseal

MARKER, DATA = "files.json", "data"
FAILED = ".failed.json"
EVERY = 30.0  # seconds between two looks whether there is more to take back
_TRIES = 3  # of a reader whose files were replaced under it
_HEAVY = "weights/"  # what a reader of results has no use for; names are enough
_STATES = "state"


def is_url(words: object) -> bool:
    """Whether a place is named by a URL, as s3://bucket/runs."""
    return "://" in str(words)


@dataclass(frozen=True)
class AtUrl:
    """The runs at a URL, by the names of their folders."""

    url: str

    @cached_property
    def _fs(self) -> Any:
        try:
            import fsspec

            found, _ = fsspec.core.url_to_fs(self.url)
        except ImportError as reason:
            raise ClasswiseError(
                f"--out {cut(self.url)}: {reason}; install it, or name a folder"
            ) from None
        except Exception as reason:  # whatever a file system of somebody's raises
            raise self._failed("be opened", reason) from None
        return found

    @cached_property
    def _root(self) -> str:
        return str(self._fs._strip_protocol(self.url)).rstrip("/")

    def _failed(self, what: str, reason: Exception) -> ClasswiseError:
        words = " ".join(str(reason).split()) or type(reason).__name__
        return ClasswiseError(
            f"{cut(self.url)} cannot {what}: {cut(words)}; look at the address and your rights "
            "there, or name a folder"
        )

    def names(self) -> list[str]:
        """The runs that are there; an empty place has none."""
        try:
            self._fs.invalidate_cache()
            if not self._fs.exists(self._root):
                return []
            found = self._fs.find(self._root, maxdepth=2)
        except Exception as reason:
            raise self._failed("be read", reason) from None
        return sorted(PurePosixPath(p).parent.name for p in found if p.endswith(f"/{MARKER}"))

    def push(self, folder: Path, name: str) -> None:
        """Take a run back as it is now; a file that is there already is not sent again.

        The state is read before all else: weights and logs may then be younger than it, as after a
        kill, which training puts right, and are never older.
        """
        before, files = self._marker(name), dict[str, str]()
        known = set(before.values())
        try:
            for path in sorted(_files(folder), key=lambda one: not one.name.startswith(_STATES)):
                content = path.read_bytes()
                digest = hashlib.blake2b(content, digest_size=16).hexdigest()
                if digest not in known:
                    self._write(f"{name}/{DATA}/{digest}", content)
                    known.add(digest)
                files[path.relative_to(folder).as_posix()] = digest
            if files != before:
                self._write(f"{name}/{MARKER}", sealed_text({"files": files}))
            for digest in set(before.values()) - set(files.values()):
                with contextlib.suppress(FileNotFoundError):
                    self._fs.rm_file(f"{self._root}/{name}/{DATA}/{digest}")
        except FileNotFoundError:
            raise  # a file of the run was replaced this moment: the next push has it
        except Exception as reason:
            raise self._failed("be written", reason) from None

    def pull(self, name: str, folder: Path, *, light: bool = False) -> bool:
        """Bring a run here, if it is there; `light` without what only training needs.

        Of weights a light run has the names alone, as empty files.
        """
        for _ in range(_TRIES):
            files = self._marker(name)
            try:
                for path, digest in files.items():
                    self._fetch(name, path, digest, folder, light)
            except FileNotFoundError:
                continue  # replaced since the marker was read
            return bool(files)
        raise ClasswiseError(
            f"{cut(self.url)}/{name} names files that are not there; delete that folder, and its "
            "run is made again"
        )

    def keep_failures(self, folder: Path) -> None:
        """Let the URL have the same notes on failed runs as a folder has."""
        here = {path.name for path in folder.glob(f"*{FAILED}")}
        try:
            there = self._failures()
            for name in here:
                self._write(name, (folder / name).read_bytes())
            for name in there - here:
                self._fs.rm_file(f"{self._root}/{name}")
        except Exception as reason:
            raise self._failed("be written", reason) from None

    def mirror(self, folder: Path) -> None:
        """Bring all runs into a folder, light, with the notes on those that failed."""
        for name in self.names():
            self.pull(name, folder / name, light=True)
        for name in self._failures():
            write_atomically(folder / name, self._fs.cat_file(f"{self._root}/{name}"))

    def _failures(self) -> set[str]:
        found = self._fs.find(self._root, maxdepth=1) if self._fs.exists(self._root) else []
        return {PurePosixPath(path).name for path in found if path.endswith(FAILED)}

    def _fetch(self, name: str, path: str, digest: str, folder: Path, light: bool) -> None:
        place = _inside(folder, path)
        if light and path.startswith(_STATES):
            return
        if light and path.startswith(_HEAVY):
            write_atomically(place, b"")
            return
        content = self._fs.cat_file(f"{self._root}/{name}/{DATA}/{digest}")
        if hashlib.blake2b(content, digest_size=16).hexdigest() != digest:
            raise ClasswiseError(
                f"{cut(self.url)}/{name}: {path} is not as it was written; delete that folder, and "
                "its run is made again"
            )
        write_atomically(place, content)

    def _marker(self, name: str) -> dict[str, str]:
        """The files of a run by their digests; none where it is not there."""
        try:
            content = self._fs.cat_file(f"{self._root}/{name}/{MARKER}")
        except FileNotFoundError:
            return {}
        except Exception as reason:
            raise self._failed("be read", reason) from None
        try:
            files = unseal(content).get("files", {})
        except Damaged as reason:
            raise ClasswiseError(
                f"{cut(self.url)}/{name}/{MARKER} {reason}; delete that folder, and its run is "
                "made again"
            ) from None
        return {str(path): str(digest) for path, digest in dict(files).items()}

    def _write(self, path: str, content: bytes) -> None:
        """Write beside the target and move it there: on no file system is a part of it seen."""
        target = f"{self._root}/{path}"
        part = f"{target}.{uuid.uuid4().hex[:8]}.part"
        self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._fs.pipe_file(part, content)
        self._fs.mv(part, target)
        self._fs.invalidate_cache()


@contextlib.contextmanager
def brought_here(url: str, names: Sequence[str], every: float = EVERY) -> Iterator[Path]:
    """A folder of this machine with some runs of a URL, which are taken back while they grow.

    What is here at the end is taken back in any case, also of a run that failed.
    """
    there, ended = AtUrl(url), threading.Event()
    with TemporaryDirectory(prefix="classwise-") as scratch:
        folder = Path(scratch)
        for name in names:
            there.pull(name, folder / name)

        def take_back() -> None:
            for name in names:
                if (folder / name).is_dir():
                    there.push(folder / name, name)

        def look() -> None:
            while not ended.wait(every):
                with contextlib.suppress(ClasswiseError, OSError):  # the next time, or at the end
                    take_back()

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield folder
        finally:
            ended.set()
            thread.join()
            take_back()


@dataclass(frozen=True, eq=False)
class Home:
    """Where the runs of all studies are, as a folder of this machine: itself, or what it mirrors.

    A mirror has what pages and plans read of the runs at a URL; it is gone when nobody holds it.
    """

    folder: Path
    there: AtUrl | None = None

    @classmethod
    def of(cls, words: str | Path) -> Home:
        """A folder, or a URL, which is looked at at once."""
        if not is_url(words):
            return cls(given_path(words))
        there = AtUrl(str(words))
        home = cls(Path(mkdtemp(prefix="classwise-")), there)
        weakref.finalize(home, shutil.rmtree, home.folder, ignore_errors=True)
        there.mirror(home.folder)
        return home

    @property
    def url(self) -> str:
        """Nothing where it is a folder."""
        return "" if self.there is None else self.there.url

    def settle(self, name: str) -> None:
        """Look at a run that has ended, and tell the URL why some have failed."""
        if self.there is not None:
            shutil.rmtree(self.folder / name, ignore_errors=True)
            self.there.pull(name, self.folder / name, light=True)
            self.there.keep_failures(self.folder)


def _files(folder: Path) -> list[Path]:
    """All files of a run but those that are being written, locks, and what was set aside."""
    every = (path for path in folder.rglob("*") if path.is_file())
    plain = (
        path
        for path in every
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    return sorted(path for path in plain if path.parent.name != "damaged")


def _inside(folder: Path, path: str) -> Path:
    """Where a file of a run goes; a name that leads out of its folder is refused."""
    plain = PurePosixPath(path)
    if plain.is_absolute() or ".." in plain.parts or not plain.parts or "\\" in path:
        raise ClasswiseError(f"a run names the file {cut(path)!r}, which is not in its folder")
    return folder.joinpath(*plain.parts)
