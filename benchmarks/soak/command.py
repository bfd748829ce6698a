"""The command line in a forked process: started, watched, killed, limited."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from classwise import cli
from soak.fault import must

DEFECT = 70  # exit code of a process that ended with a traceback
_TOUCHES = ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.truncate")
Deed = Callable[[], None]


def nothing() -> None:
    """Do nothing."""


@dataclass
class Process:
    """Something that is done in a process of its own; what it says goes to a file."""

    do: Deed
    log: Path
    pid: int = 0

    def start(self) -> Process:
        """Fork."""
        self.pid = os.fork()
        if not self.pid:
            self._be()
        return self

    def _be(self) -> None:
        code = DEFECT
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            torch.set_num_threads(1)
            self.do()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        except BaseException:
            with contextlib.suppress(OSError):
                traceback.print_exc()
        finally:
            with contextlib.suppress(OSError):
                sys.stderr.flush()
            os._exit(code)

    def end(self) -> int:
        """Wait for its end; return its exit code, below 0 if a signal ended it."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        must(code != DEFECT and "Traceback" not in self.said, f"a defect: {self.said}")
        return code

    def kill(self, after: float) -> None:
        """Kill it after some seconds; it may have ended before."""
        time.sleep(after)
        os.kill(self.pid, signal.SIGKILL)  # a zombie until `end`, so the pid is still its own

    @property
    def said(self) -> str:
        """What it wrote on stderr."""
        return self.log.read_text(errors="replace")

    @property
    def line(self) -> str:
        """The one line that says why it ended."""
        lines = [line for line in self.said.splitlines() if line.startswith("classwise: ")]
        must(len(lines) == 1, f"not one line of an error: {self.said!r}")
        return lines[0]


def command(words: Sequence[str], log: Path, before: Deed = nothing) -> Process:
    """Start a command, after something else was done in its process."""

    def do() -> None:
        before()
        sys.argv = ["classwise", *words]
        cli.main()

    return Process(do, log).start()


def run(words: Sequence[str], log: Path, before: Deed = nothing) -> None:
    """Run a command that must end well."""
    done = command(words, log, before)
    code = done.end()
    must(code == 0, f"exit code {code}: {done.said}")


class FileOperations:
    """Counts what a process does to the files of a folder, and kills it before one of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self._count = mmap.mmap(-1, 8)  # shared with the forked process

    @property
    def count(self) -> int:
        """How many there were."""
        return int.from_bytes(self._count[:], "little")

    def watch(self, last: int | None = None) -> Deed:
        """From now on count; before number `last` the process is killed."""

        def seen(event: str, given: tuple[object, ...]) -> None:
            if event not in _TOUCHES or not str(given[0]).startswith(self.folder):
                return
            count = self.count + 1
            self._count[:] = count.to_bytes(8, "little")
            if count == last:
                os.kill(os.getpid(), signal.SIGKILL)

        return lambda: sys.addaudithook(seen)
