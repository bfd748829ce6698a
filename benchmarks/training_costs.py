"""What training needs besides: memory, how steps grow, where their time goes, a whole epoch."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
from bookkeeping import made_up
from measuring import limit, timed
from nets import STEPPED, trained
from sides import Task, built, lesson, ours
from torch.profiler import ProfilerActivity, profile

from classwise import estimate
from classwise.memory import PeakMemory
from classwise.record.lines import read_lines

NET = "resnet9(width=16)"
MEMORY_ALIKE = 1.0
KINDS = {  # what torch calls its work, and what we do
    "convolution, backward": ("convolution_backward", "mkldnn_convolution_backward"),
    "convolution, forward": ("convolution", "mkldnn_convolution", "_convolution", "conv2d"),
    "BatchNorm": ("batch_norm", "native_batch_norm", "native_batch_norm_backward"),
    "ReLU": ("relu", "relu_", "threshold_backward", "clamp_min"),
    "pooling": ("max_pool2d_with_indices", "max_pool2d_with_indices_backward",
                "adaptive_max_pool2d", "adaptive_max_pool2d_backward"),
}  # fmt: skip
LEVERS = {
    "BatchNorm": "folding it into the convolutions where the attack runs in eval mode, or one "
    "kernel that normalises, rectifies and pools",
    "ReLU": "rectifying in place, or inside the convolution's own kernel",
    "pooling": "a pooling that keeps to the layout of the convolutions",
    "everything else": "fewer passes over the images between two steps of the attack",
    "convolution, backward": "fewer products in narrow convolutions, too (wide ones are taken by "
    "Winograd's tiles already), or lower precision where the processor has it: "
    "`precision=bfloat16`",
    "convolution, forward": "fewer products in narrow convolutions, too (wide ones are taken by "
    "Winograd's tiles already), or lower precision where the processor has it: "
    "`precision=bfloat16`",
}


def part_memory(args: argparse.Namespace) -> None:
    """Peak memory of two batches above the loaded images, each side in processes of its own."""
    print(f"\n## Peak memory above the loaded images, median of {args.turns} fresh processes\n")
    print("| recipe | ours | released | share |")
    print("| --- | --- | --- | --- |")
    for title, recipe, script in (
        ("AT", "at", "at"),
        ("TRADES", "trades(normalised=true)", "trades"),
        ("FAT", "fat(patience=3)", "fat"),
    ):
        task = Task(recipe, script, NET, 128, args.cache)
        found: dict[str, list[float]] = {"ours": [], "released": []}
        for _ in range(args.turns):
            for side, peaks in found.items():
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
                    peaks.append(fresh.submit(_peak, side, task).result())
        usual = {side: statistics.median(peaks) for side, peaks in found.items()}
        cells = [
            f"{usual[side]:.0f} MB ({min(p):.0f} to {max(p):.0f})" for side, p in found.items()
        ]
        share = usual["ours"] / usual["released"]
        print(f"| {title} | {' | '.join(cells)} | {share:.2f} |", flush=True)
        limit(share <= MEMORY_ALIKE, f"memory of {title}: {share:.2f} of the released code's")


def _peak(side: str, task: Task) -> float:
    lesson(task)  # the data set is loaded and gone: its peak is nobody's
    peak = PeakMemory(torch.device("cpu"))
    before = _held()
    train = built(side, task)
    train()
    train()
    found = peak.bytes()
    return float("nan") if found is None else found / 1e6 - before


def _held() -> float:
    """MB that the process holds now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def part_growth(args: argparse.Namespace) -> None:
    """Seconds of a step as one thing grows, in turns."""
    turns = args.turns
    print(f"\n## Growth: AT at `{NET}`, best of {turns} turns (median)\n")
    print("| | | | |\n| --- | --- | --- | --- |")
    _grown("5, 10, 20 steps", [made(steps=n) for n in (5, 10, 20)], turns)
    _grown("batches of 32, 64, 128: an image", [made(batch=n) for n in (32, 64, 128)], turns,
           [32, 64, 128])  # fmt: skip
    _grown("16, 32, 48 pixels", [made(batch=64, side=n) for n in (16, 32, 48)], turns)


def _grown(
    words: str, runs: list[Callable[[], object]], turns: int, images: list[int] | None = None
) -> None:
    """A row: the best seconds of each."""
    seconds: list[list[float]] = [[] for _ in runs]
    for number in range(turns):
        order = list(range(len(runs)))
        for place in order if number % 2 else order[::-1]:
            seconds[place].append(timed(runs[place])[1])
    best = [min(some) for some in seconds]
    cells = [
        f"{1000 * b / n:.1f} ms ({1000 * statistics.median(some) / n:.1f})"
        for b, some, n in zip(best, seconds, images or [1] * len(runs), strict=True)
    ]
    print(f"| {words} | {' | '.join(cells)} |", flush=True)


def made(batch: int = 128, side: int = 32, steps: int = 10) -> Callable[[], object]:
    """Our training step on random images."""
    task = Task(f"at(steps={steps})", "at", NET, batch, Path())
    return ours(made_up(10, batch, side), task, valid="0")


def part_where(args: argparse.Namespace) -> None:
    """Where the time of our steps goes, and so what could make them faster."""
    print(f"\n## Where a step's time goes, `{NET}`, and the next lever\n")
    print(f"| recipe | {' | '.join([*KINDS, 'everything else'])} |")
    print("| --- " * (len(KINDS) + 2) + "|")
    for recipe in ("at", "at(batchnorm=eval)", "trades(normalised=true)"):
        shares = _shares(built("ours", Task(recipe, "at", NET, 128, args.cache)))
        print(f"| `{recipe}` | {' | '.join(f'{value:.0%}' for value in shares.values())} |",
              flush=True)  # fmt: skip
        if recipe == "at":
            most = max(shares, key=lambda kind: _gain(kind, shares[kind]))
    print(f"\nThe next lever for AT: {most}, {LEVERS[most]}.")


def _gain(kind: str, share: float) -> float:
    """What could be saved: all of the small things, a third of what matrix products must do."""
    return share / 3 if kind.startswith("convolution") else share


def _shares(train: Callable[[], object]) -> dict[str, float]:
    """Time by kind of work, of one step."""
    train()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        train()
    names = {f"aten::{name}": kind for kind, some in KINDS.items() for name in some}
    sums = dict.fromkeys([*KINDS, "everything else"], 0.0)
    for event in seen.key_averages():
        sums[names.get(event.key, "everything else")] += event.self_cpu_time_total
    whole = sum(sums.values())
    return {kind: value / whole for kind, value in sums.items()}


def part_epoch(args: argparse.Namespace) -> None:
    """What an epoch of a short run takes beside its steps."""
    run = trained(STEPPED, args.cache)
    found = estimate(run.recipe, run.config)
    print(f"\n## A whole run, as `--estimate` has it\n\n{found.title}.\n")
    print("| | times | each | share |\n| --- | --- | --- | --- |")
    for part in found.parts:
        share = part.seconds / found.seconds
        print(f"| {part.name} | {part.times} | {part.each:.3f} s | {share:.0%} |")
    steps = next(part for part in found.parts if part.name == "steps")
    epochs = run.config.epochs
    rest = (found.seconds - found.parts[0].seconds - steps.seconds) / epochs
    real = [line["seconds"] for line in read_lines(run.path / "times.jsonl")]
    print(f"\nAn epoch takes {steps.seconds / epochs:.1f} s of steps and {rest:.1f} s beside them; "
          f"when it was trained here, it took {statistics.median(real):.1f} s.")  # fmt: skip
