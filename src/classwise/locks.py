"""One folder, one writer: a lock file that dies with its process, also on network folders.

The file says who holds it and is touched every few seconds. A lock whose process is gone from this
machine is taken over at once; one of another machine when it was not touched for a while. Ages are
differences between two times of the same file system, so that clocks need not agree; a time in the
future is believed until somebody has waited as long as that and it has not changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from classwise.errors import ClasswiseError
from classwise.limits import MOST_LOCK_BYTES
from classwise.terminal import Terminal
from classwise.texts import read_some

BEAT = 10.0  # seconds between two signs of life
LEASE = 120.0  # seconds without one after which a lock of another machine is nobody's
PATIENCE = 0.2  # seconds between two looks of somebody who waits
LOOKS = 3  # at a lock of one's own that is not there, before it is believed to be gone


class Held(ClasswiseError):
    """Somebody else writes there."""


@dataclass(frozen=True)
class Holder:
    """Who holds a lock."""

    host: str
    machine: str  # tells apart what has the same name: another boot, another container
    pid: int
    born: str  # when the process began, as the system counts; pids are used again
    since: str
    doing: str
    token: str

    @classmethod
    def here(cls, doing: str) -> Holder:
        """This process."""
        pid, now = os.getpid(), datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        token = secrets.token_hex(8)
        return cls(socket.gethostname(), _machine(), pid, _born(pid) or "", now, doing, token)

    @classmethod
    def read(cls, path: Path) -> Holder | None:
        """Who a lock file names; None where it cannot be read, or is being written."""
        try:
            said = json.loads(read_some(path, MOST_LOCK_BYTES))
            return cls(**{**said, "pid": int(said["pid"])})
        except (OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError):
            return None

    @property
    def gone(self) -> bool | None:
        """Whether the process has ended; None where that cannot be seen from here."""
        if self.machine != _machine() or os.name == "nt":
            return None
        return _born(self.pid) != self.born if self.born else not _alive(self.pid)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, {self.doing} since {self.since}"


class FolderLock:
    """A lock for the writers of one folder: `with FolderLock(folder, "training"): …`.

    Whoever comes second is refused with the holder's name, or waits for it. `remedy` says what
    else the user can do.
    """

    def __init__(
        self,
        folder: Path,
        doing: str,
        *,
        name: str = ".writer.lock",
        wait: bool = False,
        remedy: str = "wait until it has ended",
    ) -> None:
        self.path, self.me = folder / name, Holder.here(doing)
        self.wait, self.remedy = wait, remedy
        self._ended = threading.Event()
        self._seen: object = None  # the lock of somebody else as it stood
        self._seen_at = 0.0  # for the first time

    def __enter__(self) -> Self:
        began: float | None = time.monotonic()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            while not self._create():
                holder = Holder.read(self.path)
                if self._abandoned(holder):
                    self._take_away(holder)
                    continue
                who = str(holder) if holder else "another process"
                if not self.wait:
                    raise Held(f"{self.path.parent} is in use by {who}; {self.remedy}")
                if began is not None and time.monotonic() - began > 1:
                    _say(f"{self.path.parent} is in use by {who}; waiting for it")
                    began = None
                time.sleep(PATIENCE)
        except OSError as reason:
            words = reason.strerror or str(reason)
            raise ClasswiseError(f"cannot write {self.path.parent}: {words}") from None
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, what: BaseException | None, at: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._is_mine():
            with contextlib.suppress(OSError):
                self.path.unlink()

    def check(self) -> None:
        """Refuse to go on if somebody took the folder over, thinking this process dead.

        Whoever took it may have ended since: where no lock is left, it is not ours, either.
        """
        for look in range(LOOKS):
            holder = Holder.read(self.path)
            if holder == self.me:
                return
            if holder is not None:
                raise Held(
                    f"{self.path.parent} was taken over by {holder}: this process gave no sign of "
                    f"life for more than {LEASE:g} s; {self.remedy}"
                )
            if look + 1 < LOOKS:  # somebody may be putting it back, see _take_away
                time.sleep(PATIENCE)
        raise Held(
            f"{self.path}, the lock of this process, is gone: somebody deleted it, or took it over "
            f"and has ended, and may have written there; {self.remedy}"
        )

    def _create(self) -> bool:
        """Create the file with all it says, or not at all."""
        part = self.path.with_name(f"{self.path.name}.{self.me.token}.part")
        try:
            part.write_bytes((json.dumps(asdict(self.me)) + "\n").encode())
            return self._put(part)
        finally:
            part.unlink(missing_ok=True)

    def _put(self, file: Path) -> bool:
        """Make a file the lock; False where there is one."""
        try:
            os.link(file, self.path)
        except FileExistsError:
            return False
        except (OSError, NotImplementedError):  # a file system without hard links
            return self._put_plainly(file.read_bytes())
        return True

    def _put_plainly(self, content: bytes) -> bool:
        try:
            with self.path.open("xb") as stream:
                stream.write(content)
        except FileExistsError:
            return False
        return True

    def _abandoned(self, holder: Holder | None) -> bool:
        gone = None if holder is None else holder.gone
        return max(self._age(), self._unchanged()) > LEASE if gone is None else gone

    def _age(self) -> float:
        """Seconds since the last sign of life, by the clock of whoever keeps the files."""
        probe = self.path.with_name(f"{self.path.name}.{self.me.token}.part")
        try:
            probe.touch()
            return probe.stat().st_mtime - self.path.stat().st_mtime
        except FileNotFoundError:
            return 0.0  # it was given back this moment
        finally:
            probe.unlink(missing_ok=True)

    def _unchanged(self) -> float:
        """Seconds of this waiting in which nobody touched it, whatever time it bears."""
        try:
            facts = self.path.stat()
        except FileNotFoundError:
            return 0.0
        now, seen = time.monotonic(), (facts.st_ino, facts.st_mtime_ns)
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        return now - self._seen_at

    def _take_away(self, holder: Holder | None) -> None:
        """Remove an abandoned lock, and only that one.

        Another process may take it over and create its own just before the file is moved: that one
        is put back. If a third one was quicker still, the second finds out by `check`.
        """
        if Holder.read(self.path) != holder:
            return
        moved = self.path.with_name(f"{self.path.name}.{self.me.token}.old.part")
        try:
            os.rename(self.path, moved)
        except FileNotFoundError:
            return
        if Holder.read(moved) != holder:  # another one was quicker: it is theirs
            with contextlib.suppress(OSError):
                self._put(moved)
        moved.unlink(missing_ok=True)

    def _is_mine(self) -> bool:
        return Holder.read(self.path) == self.me

    def _beat(self) -> None:
        while not self._ended.wait(BEAT):
            if self._is_mine():
                with contextlib.suppress(OSError):
                    os.utime(self.path)


def short_lock(folder: Path, doing: str) -> FolderLock:
    """A lock for a moment, for which everybody waits: several audits may share a folder."""
    return FolderLock(folder, doing, name=".audits.lock", wait=True)


def forget_the_dead(folder: Path) -> None:
    """Remove what a killed process left of a short lock; an audit may have nothing to write."""
    lock = short_lock(folder, "looking")
    holder = Holder.read(lock.path)
    if holder is not None and holder.gone:
        with contextlib.suppress(OSError):  # where nothing may be written, it does no harm
            lock._take_away(holder)


def _say(words: str) -> None:
    Terminal(stderr=True).print(words, soft_wrap=True, highlight=False, markup=False)


def _machine() -> str:
    """This machine since it was started, and this container's own count of processes."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _born(pid: int) -> str | None:
    """When a process began; None where there is none, or where the system does not say."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] in "ZX" else after_name[19]


def _alive(pid: int) -> bool:
    """Whether there is such a process, where there is no /proc."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
