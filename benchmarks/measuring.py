"""What the benchmarks share: our attacks, seconds, limits that end a run with an error, options."""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from nets import NETS, trained
from others import BATCH
from torch import Tensor, nn

from classwise.attacks.judged import Judged
from classwise.attacks.names import parse_condition
from classwise.attacks.threat import Threat
from classwise.models.subject import Subject
from classwise.types import Batch

EPS = 8 / 255
ROBUST = "robust resnet9"
MISSED: list[str] = []  # limits that were not kept
Found = TypeVar("Found")
Part = Callable[[argparse.Namespace], None]


def limit(kept: bool, words: str) -> None:
    """Note a limit that was missed; the run ends with an error then."""
    if not kept:
        MISSED.append(words)


def timed(function: Callable[[], Found]) -> tuple[Found, float]:
    """Run it and count the seconds."""
    began = time.perf_counter()
    found = function()
    return found, time.perf_counter() - began


def ours(model: nn.Module, batch: Batch, attack: str, width: int = BATCH) -> Judged:
    """Attack all images, `width` at a time."""
    subject = Subject.of(model, batch.images, width=width)
    with subject.asked():
        return parse_condition(attack, Threat.of(EPS)).judge(subject, batch)


def stands(model: nn.Module, moved: Tensor, labels: Tensor) -> Tensor:
    """Who is right about the moved images, on the plain model."""
    with torch.no_grad():
        right: Tensor = model(moved).argmax(1) == labels
    return right


def share(right: Tensor) -> str:
    """Write a share of all."""
    return f"{right.double().mean():.1%}"


def options(words: str | None, parts: Mapping[str, Part]) -> argparse.ArgumentParser:
    """The options of every benchmark that takes trained networks."""
    say = argparse.ArgumentParser(
        description=words, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    say.add_argument("--parts", type=lambda t: t.split(","), default=list(parts))
    say.add_argument("--nets", type=lambda t: t.split(","), default=list(NETS))
    say.add_argument("--images", type=int, default=200)
    say.add_argument("--cache", type=Path, default=Path("runs/bench"))
    return say


def run(args: argparse.Namespace, parts: Mapping[str, Part]) -> None:
    """Run the parts that were asked for, on networks that are trained if they are not there."""
    for name in args.nets:
        trained(name, args.cache)
    begin()
    for part in args.parts:
        parts[part](args)
    end()


def begin() -> None:
    """Say what the figures below were measured with."""
    print(f"Torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}.")


def gemm_peak(side: int = 2048, turns: int = 6) -> list[float]:
    """GFLOP/s of matrix products alone: what a network cannot go beyond."""
    matrix = torch.rand(side, side)
    seconds = [timed(lambda: matrix @ matrix)[1] for _ in range(turns)]
    return [2 * side**3 / spent / 1e9 for spent in seconds[1:]]


class Steal:
    """How much of the machine somebody else had since this was made (Linux)."""

    def __init__(self) -> None:
        self.before = self._read()

    def words(self) -> str:
        """Say it, with the load at the end."""
        now = self._read()
        if self.before is None or now is None:
            return "Nobody knows what else ran on this machine."
        spent = [after - before for after, before in zip(now, self.before, strict=True)]
        stolen = spent[7] / max(1, sum(spent))
        return f"Steal time {stolen:.1%}, load {os.getloadavg()[0]:.1f} at the end."

    @staticmethod
    def _read() -> list[int] | None:
        stat = Path("/proc/stat")
        return [int(n) for n in stat.read_text().split()[1:9]] if stat.exists() else None


def end() -> None:
    """Say which limits were missed, and fail if any was."""
    print(f"\nLimits missed: {'; '.join(MISSED) or 'none'}.")
    raise SystemExit(bool(MISSED))
