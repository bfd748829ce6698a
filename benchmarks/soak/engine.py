"""Try faults in processes forked from one that has imported everything, two or more at a time.

Attempt N of a fault draws from a generator of its own, so that it can be repeated alone. A process
that dies or takes too long costs one attempt, which is a failure; another one goes on behind it.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from soak.fault import GIGABYTE, Fault, Outcome, must, plain

LARGEST_PEAK = 1 * GIGABYTE
SHOWN = 3000  # letters of a failure


@dataclass(frozen=True)
class Stretch:
    """Some attempts of a fault in a row."""

    fault: Fault
    numbers: range


class Worker:
    """A process that makes the attempts of a stretch, and how far it is."""

    def __init__(self, stretch: Stretch, seed: int, home: Path) -> None:
        self.stretch, self.seed = stretch, seed
        self.place = Path(tempfile.mkdtemp(dir=home))
        self.log = self.place.with_suffix(".jsonl")
        self._at = mmap.mmap(-1, 16)  # shared with the child: attempt, when it began
        self._mark(-1)
        self.pid = os.fork()
        if not self.pid:
            self._work()

    def _mark(self, number: int) -> None:
        self._at[:] = struct.pack("<qd", number, time.monotonic())

    @property
    def at(self) -> tuple[int, float]:
        """The attempt at work (-1: none yet), and for how many seconds."""
        number, began = struct.unpack("<qd", self._at[:])
        return number, time.monotonic() - began

    def _work(self) -> None:
        code = 1
        try:
            os.setpgid(0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _make(self.stretch, self.seed, self.place, self.log, self._mark)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def stop(self) -> None:
        """End it and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def outcome(self, ended: int) -> tuple[Outcome, range]:
        """What it found, and what is left to be tried where it did not reach its end."""
        found, fault, numbers = Outcome(), self.stretch.fault, self.stretch.numbers
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        for line in lines:
            found.add(Outcome(**json.loads(line)))
        shutil.rmtree(self.place, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        number, seconds = self.at
        if ended == 0:
            return found, range(0)
        number = max(number, numbers.start)
        late = seconds > fault.patience
        how = f"took more than {fault.patience:g} s" if late else f"ended the process ({ended})"
        found.tried = number + 1 - numbers.start
        found.failures.append((number, f"it {how}"))
        # where nothing can be prepared, nothing more is tried
        return found, range(number + 1, numbers.stop) if self.at[0] >= 0 else range(0)


def _make(stretch: Stretch, seed: int, place: Path, log: Path, mark: Callable[[int], None]) -> None:
    """Make attempts; a failure is written down at once, the rest at the end."""
    fault, found = stretch.fault, Outcome()
    attempt = fault.prepare(place)
    before = _bound(fault.room)
    parent = os.getppid()
    with log.open("a") as stream:
        for number in stretch.numbers:
            must(os.getppid() == parent, "nobody waits for this process any more")
            mark(number)
            start = time.monotonic()
            try:
                said = attempt(Random(f"{seed} {fault.title} {number}"))
                found.note(time.monotonic() - start, said and plain(said, place))
            except Exception as reason:
                words = _told(reason, place)
                stream.write(json.dumps(asdict(Outcome(failures=[(number, words)]))) + "\n")
                stream.flush()
        found.tried, found.work = len(stretch.numbers), sum(os.times()[:4])
        found.peak = max(0, _peak() - before)
        if fault.room is not None and found.peak > LARGEST_PEAK:
            number, words = stretch.numbers[-1], f"{found.peak} bytes of memory were taken"
            found.failures.append((number, words))
        stream.write(json.dumps(asdict(found)) + "\n")


def _told(reason: Exception, place: Path) -> str:
    words = plain(f"{type(reason).__name__}: {reason}", place)
    frames = traceback.extract_tb(reason.__traceback__)[-3:]
    where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames))
    return f"{words[:SHOWN]} ({where})"


def _bound(room: int | None) -> int:
    """Allow so much more memory than there is now; return how much was ever taken so far."""
    if room is not None and sys.platform == "linux":
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + room, now + room))
    return _peak()


def _peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def stretches(fault: Fault, count: int, first: int, parts: int) -> Iterator[Stretch]:
    """Divide the attempts of a fault among processes."""
    size = -(-count // parts)
    for begin in range(first, first + count, size):
        yield Stretch(fault, range(begin, min(begin + size, first + count)))


def run(
    waiting: Sequence[Stretch], seed: int, home: Path, workers: int, tell: Callable[[str], None]
) -> dict[str, Outcome]:
    """Try everything, `workers` stretches at a time; outcomes by title."""
    left = list(waiting)
    found = {one.fault.title: Outcome() for one in waiting}
    busy: list[Worker] = []
    try:
        while left or busy:
            while left and len(busy) < workers:
                busy.append(Worker(left.pop(0), seed, home))
            for worker in list(busy):
                ended = _ended(worker)
                if ended is None:
                    continue
                busy.remove(worker)
                part, rest = worker.outcome(ended)
                fault = worker.stretch.fault
                found[fault.title].add(part)
                if rest:
                    left.insert(0, Stretch(fault, rest))
                counts = f"{part.tried} tried, {len(part.failures)} failed"
                tell(f"{fault.title}: {counts}, {part.work:.1f} s of processor time")
            time.sleep(0.02)
    finally:
        for worker in busy:
            worker.stop()
            os.waitpid(worker.pid, 0)
    return found


def _ended(worker: Worker) -> int | None:
    """The exit code of a process that has ended; one that takes too long is ended."""
    if worker.at[1] > worker.stretch.fault.patience:
        worker.stop()
        return os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1]) or 1
    pid, status = os.waitpid(worker.pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if pid else None
