"""No room: the command line on a disk that is too small, and again once there is room."""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from soak.command import Deed, command, nothing, run
from soak.fault import Attempt, Fault, must
from soak.scene import audit_words, go_on, learnt, result_of, train_words

SECTION = "no room"
ENOUGH = 1 << 26
Words = Callable[[Path], list[str]]


def how() -> str:
    """How a full disk was made, for the page."""
    if _can_mount():
        return " The file system is a tmpfs of random size."
    return (
        " No file system could be mounted here: instead, no file could grow beyond a random size "
        "(RLIMIT_FSIZE)."
    )


@cache
def _can_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        if not _mount(Path(folder), ENOUGH):
            return False
        _unmount(Path(folder))
        return True


def _mount(folder: Path, size: int, *more: str) -> bool:
    words = ["mount", "-t", "tmpfs", "-o", ",".join([f"size={size}", *more]), "tmpfs", str(folder)]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)


@contextlib.contextmanager
def _disk(folder: Path, rng: Random, used: int, largest: int) -> Iterator[Deed]:
    """A folder with too little room for files of so many bytes; what a process there does first."""
    if not _can_mount():
        most = rng.randint(1, largest)
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        return
    try:
        must(_mount(folder, rng.randint(1, used)), "no file system was mounted")
        yield nothing
    finally:
        _unmount(folder)


def _make_room(folder: Path) -> None:
    if _can_mount():
        must(_mount(folder, ENOUGH, "remount"), "the file system was not enlarged")


def _prepare(place: Path, work: Callable[[Path], tuple[Words, Callable[..., Any]]]) -> Attempt:
    words_for, result = work(place)
    straight, disk, log = place / "straight", place / "disk", place / "full.log"
    for folder in (straight, disk):
        folder.mkdir()
    run(words_for(straight / "made"), log)
    wanted = result(words_for(straight / "made"), straight / "made")
    sizes = [one.stat().st_size for one in straight.glob("**/*") if one.is_file()]
    pages = sum(-(-size // 4096) * 4096 for size in sizes)

    def attempt(rng: Random) -> str | None:
        for left in disk.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        words, said = words_for(disk / "made"), None
        with _disk(disk, rng, pages, max(sizes)) as first:
            process = command(words, log, first)
            code = process.end()
            if code:
                must(code == 2, f"exit code {code}: {process.said}")
                said = process.line
                must(said.startswith("classwise: cannot write "), said)
            _make_room(disk)
            go_on(words, disk / "made", log)
            must(result(words, disk / "made") == wanted, "the result is another one")
        return said

    return attempt


def _training(_: Path) -> tuple[Words, Callable[..., Any]]:
    return train_words, result_of


def _audit(place: Path) -> tuple[Words, Callable[..., Any]]:
    weights = learnt(place)
    return (lambda folder: audit_words(weights, folder)), result_of


def _page(place: Path) -> tuple[Words, Callable[..., Any]]:
    """A report; its page is one file with everything in it."""
    kept = place / "kept"
    run(audit_words(learnt(place), kept), place / "full.log")

    def words(made: Path) -> list[str]:
        return ["report", str(kept), "--out", str(made.with_suffix(".html"))]

    return words, lambda _, made: made.with_suffix(".html").read_bytes()


FAULTS = (
    Fault(SECTION, "a training", 50, lambda place: _prepare(place, _training), parallel=True),
    Fault(SECTION, "an audit", 30, lambda place: _prepare(place, _audit), parallel=True),
    Fault(SECTION, "a report", 20, lambda place: _prepare(place, _page)),
)
