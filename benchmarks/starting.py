"""How long a training run takes to begin: a fresh process up to its first batch."""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from measuring import limit

LONGEST = 2.0  # seconds to the first batch of CIFAR-10
_LOADING = "import torch"
_BEGINNING = """
import os, sys
from classwise import train
from classwise.training.step import Step
Step.__call__ = lambda *_: os._exit(0)
train("at", data="cifar10", model="resnet9(width=16)", epochs=1, out=sys.argv[1], quiet=True)
"""


class Spent(NamedTuple):
    """What a process took, by the clock and of processors."""

    wall: float
    processor: float


def part_start(args: argparse.Namespace) -> None:
    """Interpreter, imports, data, network, first state: all that comes before the first batch."""
    print(f"\n## From nothing to the first batch of CIFAR-10, {args.turns} fresh processes each\n")
    print("| process | best | median | processor time, best |\n| --- | --- | --- | --- |")
    for title, script in (("`import torch` alone", _LOADING), ("the first batch", _BEGINNING)):
        fresh(script)  # its bytecode is written, its files are in the system's memory
        found = [fresh(script) for _ in range(args.turns)]
        wall = [one.wall for one in found]
        print(
            f"| {title} | {min(wall):.2f} s | {statistics.median(wall):.2f} s "
            f"| {min(one.processor for one in found):.2f} s |",
            flush=True,
        )
    limit(min(wall) <= LONGEST, f"the first batch comes after {min(wall):.2f} s, not {LONGEST:g}")


def fresh(script: str) -> Spent:
    """Run a script in a new interpreter, as a user would; it is given an empty folder."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        before, began = _of_children(), time.perf_counter()
        subprocess.run([sys.executable, "-c", script, f"{folder}/run"], env=kept, check=True)
        wall = time.perf_counter() - began
    return Spent(wall, _of_children() - before)


def _of_children() -> float:
    """Processor seconds of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
