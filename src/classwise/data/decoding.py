"""Many picture files become rows of one array, by threads or by processes of their own.

Nothing here knows torch, so that a process is at work after a third of a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from classwise.data.pictures import Fit, NotAnImage, pillow, read_picture
from classwise.errors import ClasswiseError

MANY = 2000  # files from which processes pay: small pictures are mostly Python's work, not C's
MOST_WORKERS = 64
# Never the folder that the user happens to be in: it may be full of a stranger's files.
_WORKER = (
    "import sys, json; sys.path[:] = json.loads(sys.stdin.readline()); "
    "from classwise.data.decoding import serve; serve()"
)


@dataclass(frozen=True)
class Shard:
    """What came of some files one behind the other: checksums of the rows, kinds, bad ones."""

    first: int
    sums: list[int]
    kinds: dict[str, int]
    bad: dict[str, str]  # row, as text because of JSON -> why

    @classmethod
    def read(cls, said: dict[str, Any]) -> Shard:
        """As it was written; a KeyError or TypeError where it was something else."""
        sums, bad, kinds = said["sums"], dict(said["bad"]), Counter(said["kinds"])
        return cls(int(said["first"]), [int(one) for one in sums], dict(kinds), bad)


@dataclass(frozen=True)
class Target:
    """A file with room for images (n×3×h×w bytes), and how a picture becomes one of them."""

    path: str
    shape: tuple[int, ...]
    fit: Fit

    def room(self) -> NDArray[np.uint8]:
        """The file, mapped."""
        return np.memmap(self.path, np.uint8, "r+", shape=tuple(self.shape))


Decode = Callable[[int, Sequence[str]], Shard]


def decode_rows(room: NDArray[np.uint8], fit: Fit, first: int, files: Sequence[str]) -> Shard:
    """Decode files into their rows; one that cannot be leaves its row black."""
    sums, kinds, bad = [], Counter[str](), {}
    for row, file in enumerate(files, first):
        try:
            pixels, kind = read_picture(Path(file), (room.shape[2], room.shape[3]), fit)
            room[row], kinds[kind] = pixels, kinds[kind] + 1
        except NotAnImage as reason:
            room[row], bad[str(row)] = 0, str(reason)
        sums.append(zlib.crc32(room[row].data))
    return Shard(first, sums, dict(kinds), bad)


def decode_all(
    decode: Decode, files: Sequence[str], firsts: Sequence[int], step: int, workers: int
) -> Iterator[Shard]:
    """Decode the shards that begin at `firsts`, several at a time, in whatever order they end."""
    pool = ThreadPoolExecutor(workers)
    try:
        tasks = [pool.submit(decode, first, files[first : first + step]) for first in firsts]
        for task in as_completed(tasks):
            yield task.result()
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C does not wait for the rest


def workers_for(count: int) -> int:
    """How many work at so many files: one on each core that this process may use."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cores = os.cpu_count() or 1
    return max(1, min(cores, count, MOST_WORKERS))


class Crew:
    """Processes that decode into one target: `with Crew(target, 4) as crew: crew.decode(...)`."""

    def __init__(self, target: Target, workers: int) -> None:
        self.target, self.workers = target, workers
        self._free: queue.Queue[subprocess.Popen[str]] = queue.Queue()
        self._all: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        path = [one for one in sys.path if one]
        lines = [json.dumps(path), json.dumps(asdict(self.target))]
        try:
            for _ in range(self.workers):
                # In a session of its own: Ctrl-C is for us, who then close its input.
                one = subprocess.Popen(
                    [sys.executable, "-P", "-W", "ignore", "-c", _WORKER],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
                self._all.append(one)
                _tell(one, *lines)
                self._free.put(one)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, what: BaseException | None, at: TracebackType | None
    ) -> None:
        for one in self._all:
            one.kill()  # whatever it was at is done again
            one.wait()
            for pipe in (one.stdin, one.stdout):
                with contextlib.suppress(OSError):
                    assert pipe is not None
                    pipe.close()

    def decode(self, first: int, files: Sequence[str]) -> Shard:
        """Let one of them decode, once one is free."""
        one = self._free.get()
        try:
            _tell(one, json.dumps([first, list(files)]))
            assert one.stdout is not None
            return Shard.read(json.loads(one.stdout.readline()))
        except (OSError, ValueError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(1)  # its pipe closes a moment before it has ended
            raise ClasswiseError(
                f"the process that decoded {files[0]} and {len(files) - 1} more files after it "
                f"ended with code {one.poll()}; what was decoded before is kept, repeat the "
                "command, or take those files away"
            ) from None
        finally:
            self._free.put(one)


def serve() -> None:
    """What such a process does: a target, then files line by line, until there are no more."""
    target = Target(**json.loads(sys.stdin.readline()))
    pillow("reading images")
    room = target.room()
    with warnings.catch_warnings(action="ignore"):
        for line in sys.stdin:
            first, files = json.loads(line)
            print(json.dumps(asdict(decode_rows(room, target.fit, first, files))), flush=True)


def _tell(one: subprocess.Popen[str], *lines: str) -> None:
    assert one.stdin is not None
    for line in lines:
        one.stdin.write(line + "\n")
    one.stdin.flush()
