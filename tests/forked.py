"""Processes of their own, forked from one that has imported what a command imports.

Started anew, `classwise train` takes four seconds to import torch and what training asks for. Here
one process per pytest worker does so once, and every other is a fork of it: with its own number,
folder, environment and output, and none of its parent's threads. What is about the start or the end
of the interpreter, or about processes that a command starts itself, needs a real one.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from functools import cache
from pathlib import Path
from typing import Any

import classwise

TESTS = Path(__file__).parent
IMPORTED = (
    *("torch._dynamo", "torch.fx", "sklearn.datasets", "scipy.stats", "classwise.doors.targets"),
    *("classwise.doors.folders", "classwise.training.loop", "classwise.report.html"),
)
COMMAND = "import classwise.cli as cli; cli.main()"


def start(*words: Any, code: str = COMMAND, cwd: Any = None, path: Any = "") -> Fork:
    """Begin `classwise WORDS`, or other code with these words as sys.argv[1:], in a folder.

    `path` comes first where modules are looked for, else the folder.
    """
    asked = {"argv": ["classwise", *map(str, words)], "code": code, "path": str(path)}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "400"}
    return Fork({**asked, "cwd": str(cwd or Path.cwd()), "env": environment})


class Fork:
    """One of them, with what tests use of subprocess.Popen."""

    def __init__(self, asked: dict[str, Any]) -> None:
        # pipes with names, as a process that may write no file can still say why
        with tempfile.TemporaryDirectory() as home:
            pipes = {name: os.path.join(home, name) for name in ("out", "err")}
            for path in pipes.values():
                os.mkfifo(path)
            flags = os.O_RDONLY | os.O_NONBLOCK
            self._pipes = {name: os.open(path, flags) for name, path in pipes.items()}
            self.pid = _ask({**asked, **pipes})
        self._said = dict.fromkeys(pipes, b"")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, below 0 if a signal ended it; None while it runs."""
        if self.returncode is None:
            self.returncode = _ask({"ended": self.pid})
            for name, pipe in self._pipes.items():
                with contextlib.suppress(BlockingIOError):
                    while some := os.read(pipe, 1 << 16):
                        self._said[name] += some
                if self.returncode is not None:
                    os.close(pipe)
        return self.returncode

    def said(self, where: str = "out") -> str:
        """What it has said so far."""
        self.poll()
        return self._said[where].decode()

    def wait(self, seconds: float = 600) -> int:
        """Wait for its end."""
        deadline = time.monotonic() + seconds
        while (code := self.poll()) is None:
            assert time.monotonic() < deadline, f"it did not end in {seconds} s"
            time.sleep(0.005)
        return code

    def end(self) -> tuple[int, str, str]:
        """Wait for its end; its exit code and what it said on stdout and stderr."""
        return self.wait(), self.said("out"), self.said("err")

    def first_line(self) -> str:
        """What it says first, as soon as it has."""
        while "\n" not in self.said():
            assert self.poll() is None, self.said("err")
            time.sleep(0.005)
        return self.said().partition("\n")[0]

    def send_signal(self, which: int) -> None:
        """Nobody has waited for it, so the number is still its own."""
        if self.poll() is None:
            os.kill(self.pid, which)

    def kill(self) -> None:
        """End it, if it has not ended."""
        self.send_signal(signal.SIGKILL)
        self.wait()


@cache
def _parent() -> subprocess.Popen[str]:
    """The one that forks; it ends with its standard input."""
    paths = [Path(classwise.__file__).parents[1], TESTS, os.environ.get("PYTHONPATH", "")]
    facts = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "COLUMNS": "400"}
    process = subprocess.Popen(
        [sys.executable, "-c", "import forked; forked.serve()"],
        env={**os.environ, "OMP_NUM_THREADS": "1", **facts},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    def close() -> None:
        with process:
            assert process.stdin is not None
            process.stdin.close()

    atexit.register(close)
    return process


def _ask(words: dict[str, Any]) -> Any:
    parent = _parent()
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(json.dumps(words) + "\n")
    parent.stdin.flush()
    return json.loads(parent.stdout.readline())


def serve() -> None:
    """Be the parent: fork when asked to, and say whether a child has ended."""
    import importlib

    import torch

    torch.set_num_threads(1)  # a pool of threads would not survive a fork
    for name in IMPORTED:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for line in sys.stdin:
        asked = json.loads(line)
        if "ended" in asked:
            pid, status = os.waitpid(asked["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            pipes = [os.open(asked[name], os.O_WRONLY) for name in ("out", "err")]
            answer = os.fork()
            if not answer:
                _be(asked, *pipes)
            for pipe in pipes:
                os.close(pipe)
        print(json.dumps(answer), file=answers, flush=True)


def _be(asked: dict[str, Any], out: int, err: int) -> None:
    """Be the child, to its end."""
    code = 1
    try:
        # whoever started the tests in the background has Ctrl-C ignored; a user has not
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["env"])
        sys.argv = asked["argv"]
        sys.path[:0] = [asked["path"] or asked["cwd"]]
        exec(compile(asked["code"], "<forked>", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
