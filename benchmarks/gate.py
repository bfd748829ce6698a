"""Simulate how often the gate's drop rule and diff's worst-class interval err, for docs/gate.md.

python benchmarks/gate.py [repetitions]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from classwise.statistics.exact_change import surely_above, surely_below
from classwise.statistics.intervals import Rates, worst_interval
from classwise.statistics.paired import paired_interval
from classwise.statistics.worst_change import worst_change_interval

ERROR = 0.05
Whole = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Setting(NamedTuple):
    """Classes of these sizes, of whose images a share is won, and the drop that is allowed."""

    sizes: Whole
    won: float
    limit: float

    @property
    def title(self) -> str:
        """The first cells of its row."""
        first, last = self.sizes[0], self.sizes[-1]
        sizes = f"{first}" if first == last else f"{first} down to {last}"
        return f"| {len(self.sizes)} | {sizes} | {self.won:.0%} | {100 * self.limit:g} |"


class Shares(NamedTuple):
    """Shares of repetitions in which the rule failed and in which it passed."""

    failed: float
    passed: float


Decision = Callable[[Whole, Whole, Whole, float, int], tuple[Mask, Mask]]


def exactly(lost: Whole, won: Whole, sizes: Whole, limit: float, count: int) -> tuple[Mask, Mask]:
    """Which classes break the rule and which keep it, as the gate decides."""
    return (
        surely_below(lost, won, sizes, -limit, ERROR / count),
        surely_above(lost, won, sizes, -limit, ERROR),
    )


def by_score(lost: Whole, won: Whole, sizes: Whole, limit: float, count: int) -> tuple[Mask, Mask]:
    """The same by score intervals, shared out over the classes on both sides: approximate."""
    low, high = paired_interval(lost, won, sizes, 1 - 2 * ERROR / count)
    return high < -limit, low >= -limit


def rule(setting: Setting, drops: Rates, decide: Decision, repetitions: int, seed: int) -> Shares:
    """Let the classes drop by these shares, again and again, and hold them against the limit."""
    random, n = np.random.default_rng(seed), setting.sizes
    shape = (repetitions, len(n))
    lost = random.binomial(n, setting.won + drops, shape)
    won = random.binomial(n - lost, setting.won / (1 - setting.won - drops), shape)
    # every distinct result is decided once
    base = int(n.max()) + 1
    key, back = np.unique((n * base + lost) * base + won, return_inverse=True)
    counts = key // base % base, key % base, key // base**2
    broken, kept = (part[back].reshape(shape) for part in decide(*counts, setting.limit, len(n)))
    failed = broken.any(1)
    return Shares(float(failed.mean()), float((kept.all(1) & ~failed).mean()))


def settings() -> Iterator[Setting]:
    """From one image up: equal classes, then classes of very different sizes."""
    mixes = ((0.0, 0.03), (0.02, 0.03), (0.1, 0.03), (0.05, 0.0), (0.0, 0.1))
    tail = np.geomspace(1000, 10, 10).round().astype(np.int64)
    for sizes, most in (
        (np.full(1, 10), 5),
        (np.full(1, 100), 5),
        (np.full(1, 1000), 5),
        (np.full(10, 10), 1),
        (np.full(10, 100), 5),
        (np.full(10, 1000), 5),
        (tail, 3),
        (np.full(100, 100), 5),
        (np.full(100, 1000), 1),
    ):
        yield from (Setting(sizes, won, limit) for won, limit in mixes[:most])


class WorstChange(NamedTuple):
    """How often an interval held the change of the worst class, and its mean width."""

    covered: float
    width: float


def as_before(sizes: Whole, hits: Whole, lost: Whole, won: Whole) -> tuple[Rates, Rates]:
    """Both worst-class intervals, cut with paired ones that hold for all classes at once."""
    level = 1 - ERROR / 4
    (first_low, first_high), (low, high) = (
        worst_interval(right, sizes, level) for right in (hits, hits + won - lost)
    )
    down, up = paired_interval(lost, won, sizes, 1 - ERROR / 2 / sizes.shape[-1])
    return np.maximum(low - first_high, down.min(-1)), np.minimum(high - first_low, up.max(-1))


def worst_change(
    interval: Callable[..., tuple[Rates, Rates]],
    sizes: Whole,
    before: Rates,
    after: Rates,
    apart: float,
    repetitions: int,
    seed: int,
) -> WorstChange:
    """Draw two models of these accuracies; `apart` is 1 if they err independently, 0 if alike."""
    random = np.random.default_rng(seed)
    shape = (repetitions, len(sizes))
    least_lost, alone = np.maximum(before - after, 0), before * (1 - after)
    share_lost = least_lost + apart * (alone - least_lost)
    share_won = share_lost + after - before
    lost = random.binomial(sizes, share_lost, shape)
    won = random.binomial(sizes - lost, share_won / (1 - share_lost), shape)
    both = (before - share_lost) / np.maximum(1 - share_lost - share_won, 1e-12)
    hits = lost + random.binomial(sizes - lost - won, np.clip(both, 0, 1))
    low, high = interval(np.broadcast_to(sizes, shape), hits, lost, won)
    truth = after.min() - before.min()
    covered = (low - 1e-12 <= truth) & (truth <= high + 1e-12)
    return WorstChange(float(covered.mean()), float((high - low).mean()))


def worst_settings() -> Iterator[tuple[str, Whole, Rates, Rates, float]]:
    """One class, a clear worst class, many that are nearly worst, few images, unequal sizes."""
    half = np.full(10, 0.5)
    one_bad = np.array([0.4, *half[1:]])
    steps = np.linspace(0.2, 0.8, 10)
    tail = np.geomspace(1000, 10, 10).round().astype(np.int64)
    for n in (10, 100):
        same = np.full(10, n)
        yield f"1 | {n} | 50 → 45, half apart", same[:1], half[:1], half[:1] - 0.05, 0.5
        yield f"10 | {n} | all 50 → 50, half apart", same, half, half, 0.5
        yield f"10 | {n} | all 50 → one 40, half apart", same, half, one_bad, 0.5
        yield f"10 | {n} | one 40 → all 50, apart", same, one_bad, half, 1.0
        yield f"10 | {n} | 20 to 80 → 5 less, alike", same, steps, steps - 0.05, 0.0
        yield f"10 | {n} | 20 to 80 → the same upside down, apart", same, steps, steps[::-1], 1.0
    # bounds of large classes on which models differ much take long: here they differ little
    same = np.full(10, 1000)
    yield "1 | 1000 | 50 → 45, alike", same[:1], half[:1], half[:1] - 0.05, 0.0
    yield "10 | 1000 | all 50 → one 40, alike", same, half, one_bad, 0.0
    yield "10 | 1000 | 20 to 80 → 5 less, alike", same, steps, steps - 0.05, 0.0
    yield "10 | 1000 down to 10 | 20 to 80 → 5 less, alike", tail, steps, steps - 0.05, 0.0
    many = np.linspace(0.2, 0.8, 100)
    yield "100 | 100 | 20 to 80 → 5 less, alike", np.full(100, 100), many, many - 0.05, 0.0


def print_rule(repetitions: int) -> None:
    """Print what the drop rule does: four truths, each decided by score and exactly."""
    print(f"{repetitions} repetitions\n")
    print(
        "| K | images per class | won | limit, points | fails wrongly: score | exact "
        "| finds a drop: score | exact | passes wrongly: score | exact | passes rightly: score "
        "| exact |\n|" + " ---: |" * 12
    )
    for seed, one in enumerate(settings()):
        first = np.arange(len(one.sizes)) == 0
        truths = (
            (np.full(len(first), one.limit), "failed"),
            (np.where(first, 2 * one.limit + 0.02, 0.0), "failed"),
            (np.where(first, one.limit, 0.0), "passed"),
            (np.zeros(len(first)), "passed"),
        )
        shares = [
            getattr(rule(one, drops, decide, repetitions, seed), end)
            for drops, end in truths
            for decide in (by_score, exactly)
        ]
        print(one.title, " | ".join(f"{100 * share:.1f}" for share in shares), "|", flush=True)


def print_worst_change(repetitions: int) -> None:
    """Print what the worst-class interval does, as it was and as it is."""
    print(f"\n{repetitions} repetitions\n")
    print(
        "| K | images per class | accuracies, % | covers: before | now | mean width: before "
        "| now |\n| ---: | ---: | --- |" + " ---: |" * 4
    )
    for seed, (title, sizes, before, after, apart) in enumerate(worst_settings()):
        old, new = (
            worst_change(interval, sizes, before, after, apart, repetitions, seed)
            for interval in (as_before, worst_change_interval)
        )
        shares = (old.covered, new.covered, old.width, new.width)
        print(f"| {title} |", " | ".join(f"{100 * share:.1f}" for share in shares), "|", flush=True)


def main(repetitions: int = 5000) -> None:
    """Print two Markdown tables."""
    print_rule(repetitions)
    print_worst_change(repetitions // 10)


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2]))
