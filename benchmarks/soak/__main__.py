"""Try every class of faults and write what came of it into docs/reliability.md.

PYTHONPATH=benchmarks:tests python -m soak [--times 10] [--seed 0] [--only words] [--at 17]

Where something fails, the exit code is 1, and a line says how to repeat that one attempt.
"""

from __future__ import annotations

import argparse
import importlib
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from soak import damage, engine, files, full_disk, kills, page, words, writers, yours
from soak.fault import Fault, Outcome

# What commands import when they are called: here once, not in every forked process.
LATER = (
    *("torch._dynamo", "torch.fx", "sklearn.datasets", "scipy.stats", "plotly.graph_objects"),
    *("classwise.doors.targets", "classwise.doors.folders", "classwise.auditing.sequential"),
)
FEW = 50  # attempts of a smoke run at most
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
FAULTS: tuple[Fault, ...] = (
    *(*kills.FAULTS, *writers.FAULTS, *full_disk.FAULTS),
    *(*damage.FAULTS, *yours.FAULTS, *words.FAULTS, *files.FAULTS),
)


def options() -> argparse.ArgumentParser:
    """What can be asked for."""
    say = argparse.ArgumentParser(
        "soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    say.add_argument("--times", type=float, default=1.0, help="of the numbers of a bounded run")
    say.add_argument("--seed", type=int, default=None, help="all draws follow from it")
    say.add_argument("--only", default="", help="faults whose title has these words")
    say.add_argument(
        "--smoke", action="store_true", help="one class of faults of each section, a few attempts"
    )
    say.add_argument("--at", type=int, default=None, help="this attempt alone")
    say.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    say.add_argument("--page", type=Path, help="(default: docs/reliability.md, of all faults only)")
    say.add_argument("--list", action="store_true", help="name all faults")
    return say


def _firsts(faults: Sequence[Fault]) -> list[Fault]:
    """The first of every section."""
    return list({one.section: one for one in reversed(faults)}.values())[::-1]


def tell(line: str) -> None:
    """A line of progress."""
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Try them."""
    args = options().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and no process stays behind
    torch.set_num_threads(1)  # forked processes have no thread pool but their own
    os.environ.update(COLUMNS="400", OMP_NUM_THREADS="1")
    chosen = [one for one in FAULTS if args.only in one.title]
    if args.smoke:
        chosen = [replace(one, count=min(one.count // 50, FEW)) for one in _firsts(chosen)]
    if args.list or not chosen:
        print("\n".join(one.title for one in FAULTS))
        return 0 if args.list else 2
    seed = secrets.randbelow(10**6) if args.seed is None else args.seed
    for name in LATER:
        importlib.import_module(name)
    tell(f"seed {seed}, {len(chosen)} classes of faults, {args.workers} processes")
    work = _work(chosen, args.times, args.at, args.workers)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-") as home:
        # neither what this machine's user has fetched nor his cache is touched
        os.environ["XDG_CACHE_HOME"] = str(Path(home, "cache"))
        os.environ.pop("CLASSWISE_DATA", None)
        found = engine.run(work, seed, Path(home).resolve(), args.workers, tell)
    failed = _say_failures(found, seed)
    seconds = time.monotonic() - began
    to = args.page or (PAGE if len(chosen) == len(FAULTS) and args.at is None else None)
    if to is not None:
        kind = "in small" if args.smoke else f"{args.times:g} times the usual numbers"
        told = {"no room": full_disk.how()} if any("no room" in one for one in found) else {}
        soak = page.Soak(seed, kind, args.workers, seconds, told)
        page.write(to, soak, chosen, found)
        tell(f"wrote {to}")
    tell(f"{sum(one.tried for one in found.values())} faults, {failed} failures, {seconds:.0f} s")
    return int(failed > 0)


def _work(
    chosen: Sequence[Fault], times: float, at: int | None, workers: int
) -> list[engine.Stretch]:
    """The attempts to make: long ones in several processes."""
    if at is not None:
        return [engine.Stretch(one, range(at, at + 1)) for one in chosen]
    some: list[engine.Stretch] = []
    for one in chosen:
        count = max(1, round(one.count * times))
        parts = workers if one.parallel else 1
        some += engine.stretches(one, count, 0, min(parts, count))
    return some


def _say_failures(found: Mapping[str, Outcome], seed: int) -> int:
    count = 0
    for title, one in found.items():
        for number, why in one.failures:
            count += 1
            tell(f"FAILED {title}, attempt {number}: {why}")
            tell(f"  repeat it: make soak SEED={seed} AT={number} ONLY='{title}'")
    return count


if __name__ == "__main__":
    sys.exit(main())
