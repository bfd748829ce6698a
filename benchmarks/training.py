"""Training beside the papers' released code and a plain loop around torchattacks, in one run.

python benchmarks/training.py [--all] [--page FILE]
    [--parts steps,memory,growth,classes,where,epoch,start]

Trains one CIFAR-10 network first if `runs/bench` does not hold it. The sides take turns on the same
images, each in a process of its own, so read the ratios; the seconds are those of the machine.
Prints Markdown, and writes it to a page if told so.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from bookkeeping import part_classes
from measuring import Part, Steal, begin, end, gemm_peak, limit
from nets import STEPPED, trained
from sides import Task, Turn, turn
from starting import part_start
from training_costs import part_epoch, part_growth, part_memory, part_where

NINE, EIGHTEEN = "resnet9(width=16)", "preactresnet18"
BATCHES = {NINE: 128, EIGHTEEN: 32}
REFERENCE = 63  # GFLOP/s of the released code itself at resnet9(width=16), on two Zen 3 cores
TRAINED = (0.25, 0.45)  # share of attacked training images that the network must know
CCM = "ccm(margin_floor=0.5)"
FAT_EVAL = "at(batchnorm=eval)+fat(patience=3)"
FRIENDLY = "at(batchnorm=eval)+fat(rule=original,patience=1)"
EVAL = {"train_mode": False}
WARM = 3  # turns of every side that are not timed


@dataclass(frozen=True)
class Row:
    """One recipe beside its script; ratios below the floor fail the run."""

    title: str
    recipe: str
    script: str
    numbers: dict[str, Any] = field(default_factory=dict)
    classwise: bool = False
    plain: bool = False  # whether torchattacks can do it, too; every image has the whole attack
    precision: str = "float32"  # ours; the script has single precision
    stops: bool = False  # samples leave early: the work depends on what the network has learned
    floor: dict[str, float] = field(default_factory=dict)
    goal: dict[str, float] = field(default_factory=dict)

    def task(self, network: str, home: Path) -> Task:
        """The row on a network."""
        numbers = tuple(sorted(self.numbers.items()))
        batch = BATCHES[network]
        given = (self.recipe, self.script, network, batch, home, numbers, self.classwise)
        return Task(*given, self.precision)


ROWS = [
    Row("AT", "at", "at", plain=True, floor={NINE: 1.85, EIGHTEEN: 1.8},
        goal={NINE: 2.1, EIGHTEEN: 2.0}),
    Row("AT, eval mode", "at(batchnorm=eval)", "at", EVAL, plain=True, floor={NINE: 1.75},
        goal={NINE: 1.9}),
    Row("AT, bfloat16", "at", "at", precision="bfloat16"),
    Row("AT+CCM", f"at+{CCM}", "at", classwise=True),
    Row("TRADES", "trades(normalised=true)", "trades", floor={NINE: 1.8}, goal={NINE: 2.0}),
    Row("TRADES+CFA", "trades+cfa", "trades", classwise=True),
    Row("FAT", "fat(patience=3)", "fat", stops=True, floor={NINE: 1.7},
        goal={NINE: 1.9}),
    Row("FAT, eval mode", FAT_EVAL, "fat", EVAL, stops=True, floor={NINE: 3.0},
        goal={NINE: 3.5}),
    Row("FAT's own rule", FRIENDLY, "friendly", {"patience": 1}, stops=True),
    Row("FAIR-TAT", f"at+{CCM}+fairtat", "fairtat", classwise=True),
    Row("BAT", "trades+bat", "bat", stops=True),
]  # fmt: skip


def part_steps(args: argparse.Namespace) -> None:
    """Images a second of every recipe, and how many times those of the others that is."""
    steal, before = Steal(), gemm_peak()
    print(f"\n## Training steps, PGD-10, {args.turns} turns each\n")
    print(
        "Images a second: the median of the turns, and the best. Ratios: the median of the rounds, "
        "and that of the best turns; the floor is for the median. GFLOP/s count all convolutions "
        f"and matrix products that a side computes; its share is that of {max(before):.0f} "
        "GFLOP/s, the best of matrix products alone just before.\n"
    )
    print("| network, batch | recipe | ours | released | times | best | floor, goal "
          "| GFLOP/s: ours | released | torchattacks, times | still right |")  # fmt: skip
    print("| --- " * 11 + "|")
    for network in args.networks:
        for row in rows_at(network, args.all):
            _row(row, network, args, max(before))
    after = gemm_peak()
    both = [*before, *after]
    print(
        f"\nMatrix products alone reach {statistics.median(both):.0f} GFLOP/s (median), "
        f"{max(both):.0f} (best), measured before and after. At `{NINE}` the released code itself "
        f"reached {REFERENCE} GFLOP/s on two quiet cores, where the median of matrix products was "
        f"154; the transcription should come near that share. Only `{NINE}` is trained, so recipes "
        f"whose samples leave early stand beside each other there alone.\n\n{steal.words()}"
    )


def rows_at(network: str, everything: bool = True) -> list[Row]:
    """What is measured on a network: of one that is not trained, nothing that depends on that."""
    if network == NINE:
        return ROWS
    return [
        row
        for row in ROWS
        if (everything and not row.stops) or network in row.floor or row.precision != "float32"
    ]


def _row(row: Row, network: str, args: argparse.Namespace, peak: float) -> None:
    """One line of the table; its limit."""
    task = row.task(network, args.cache)
    sides = ["ours", "released", *(["torchattacks"] if row.plain else [])]
    for _ in range(WARM):  # until a process keeps the memory that it needs, and asks for no more
        counted = {side: turn(side, task, count=True) for side in sides}
    found: dict[str, list[Turn]] = {side: [] for side in sides}
    for number in range(args.turns):
        for side in sides if number % 2 else sides[::-1]:
            found[side].append(turn(side, task))
    seconds = {side: [one.seconds for one in turns] for side, turns in found.items()}
    speed = [
        f"{task.batch / statistics.median(s):.1f} ({task.batch / min(s):.1f})"
        for s in (seconds["ours"], seconds["released"])
    ]
    times = {side: ratio(seconds[side], seconds["ours"]) for side in sides[1:]}
    work = []
    for side in sides[:2]:
        rate = counted[side].flops / statistics.median(seconds[side]) / 1e9
        work.append(f"{rate:.0f} ({rate / peak:.0%})")
    usual, best = times["released"]
    floor, goal = row.floor.get(network), row.goal.get(network)
    wanted = "" if floor is None else f"{floor:g}, {goal:g}"
    plain = "{:.2f} ({:.2f})".format(*times["torchattacks"]) if row.plain else ""
    robust = found["ours"][-1].robust
    print(
        f"| `{network}`, {task.batch} | {row.title} | {speed[0]} | {speed[1]} | **{usual:.2f}** "
        f"| {best:.2f} | {wanted} | {work[0]} | {work[1]} | {plain} "
        f"| {'' if robust is None else f'{robust:.0%}'} |",
        flush=True,
    )
    if robust is not None and row.plain and network == NINE:
        low, high = TRAINED
        limit(low <= robust <= high, f"{row.title}: {robust:.0%} still right, not {low} to {high}")
    if floor is not None:
        limit(usual >= floor, f"{row.title} at {network}: {usual:.2f} times, not {floor:g}")


def ratio(others: list[float], ours: list[float]) -> tuple[float, float]:
    """How many times faster: the median of the rounds, and the best turns.

    >>> ratio([2.0, 4.0, 9.0], [1.0, 2.0, 3.0])
    (2.0, 2.0)
    """
    rounds = [other / own for other, own in zip(others, ours, strict=True)]
    return statistics.median(rounds), min(others) / min(ours)


PARTS: dict[str, Part] = {
    "steps": part_steps,
    "memory": part_memory,
    "growth": part_growth,
    "classes": part_classes,
    "where": part_where,
    "epoch": part_epoch,
    "start": part_start,
}


class _Both(io.StringIO):
    """What is printed, kept as well."""

    def write(self, text: str) -> int:
        """Print and keep."""
        sys.__stdout__.write(text)  # type: ignore[union-attr]  # None without a console, as under pythonw
        return super().write(text)

    def flush(self) -> None:
        """Show what there is."""
        sys.__stdout__.flush()  # type: ignore[union-attr]  # None without a console, as under pythonw


HEAD = """# Benchmarks of training

Written by `make bench-train` (`benchmarks/training.py`): one run, all that it printed. What stands
on the other side is `benchmarks/released.py`, how the papers' released code takes its steps in our
own words; `tests/test_benchmarks_released.py` counts its passes and compares its images with ours.

"""


def main() -> None:
    """Read the options and run."""
    say = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    say.add_argument("--parts", type=lambda t: t.split(","), default=list(PARTS))
    say.add_argument("--networks", type=lambda t: t.split(";"), default=[NINE, EIGHTEEN],
                     help="split by ;")  # fmt: skip
    say.add_argument("--turns", type=int, default=5, help="of every side")
    say.add_argument("--all", action="store_true", help="every recipe on every network")
    say.add_argument("--cache", type=Path, default=Path("runs/bench"))
    say.add_argument("--page", type=Path, help="Markdown file for what is printed")
    args = say.parse_args()
    if args.turns < 5 and args.page:
        say.error("a page wants at least 5 turns")
    trained(STEPPED, args.cache)
    torch.manual_seed(0)
    kept = _Both()
    try:
        with contextlib.redirect_stdout(kept):
            begin()
            for part in args.parts:
                PARTS[part](args)
            end()
    finally:
        if args.page and "Limits missed" in kept.getvalue():
            args.page.write_text(HEAD + kept.getvalue())


if __name__ == "__main__":
    main()
