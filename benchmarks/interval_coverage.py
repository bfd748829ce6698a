"""Simulate how often the intervals hold the truth, and print the tables of docs/statistics.md.

python benchmarks/interval_coverage.py [repetitions]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from classwise.statistics.intervals import Rates, exact, simultaneous, wilson, worst_interval
from classwise.statistics.worst_class import equal_classes_p_value

LEVEL = 0.95
CLASSES = (10, 100)
PER_CLASS = (10, 100, 1000)
Sizes = npt.NDArray[np.int64]


class Coverage(NamedTuple):
    """Shares of repetitions in which each kind of interval held the truth."""

    wilson: Rates  # of each class
    exact: Rates  # of each class
    all_by_exact: float  # all classes at once, by intervals that are not made for it
    all_by_simultaneous: float
    worst_by_choice: float  # the exact interval of the class that looks worst
    worst_by_interval: float
    worst_width: float  # mean width of the interval for the worst class


def simulate(sizes: Sizes, rates: Rates, repetitions: int, seed: int) -> Coverage:
    """Draw hits for all classes, again and again, and see which intervals hold the truth."""
    hits = np.random.default_rng(seed).binomial(sizes, rates, (repetitions, len(sizes)))
    by_exact, by_simultaneous = exact(hits, sizes, LEVEL), simultaneous(hits, sizes, LEVEL)
    looks_worst = np.argmin(hits / sizes, axis=1, keepdims=True)
    chosen = tuple(np.take_along_axis(end, looks_worst, axis=1)[:, 0] for end in by_exact)
    for_worst = worst_interval(hits, sizes, LEVEL)
    worst = np.full(repetitions, rates.min())
    return Coverage(
        wilson=_holds(wilson(hits, sizes, LEVEL), rates).mean(axis=0),
        exact=_holds(by_exact, rates).mean(axis=0),
        all_by_exact=float(_holds(by_exact, rates).all(axis=1).mean()),
        all_by_simultaneous=float(_holds(by_simultaneous, rates).all(axis=1).mean()),
        worst_by_choice=float(_holds((chosen[0], chosen[1]), worst).mean()),
        worst_by_interval=float(_holds(for_worst, worst).mean()),
        worst_width=float((for_worst[1] - for_worst[0]).mean()),
    )


def settings() -> Iterator[tuple[str, Sizes, Rates]]:
    """Every mix of classes: equal and unequal in accuracy, then unequal in size as well."""
    for count in CLASSES:
        for n in PER_CLASS:
            same = np.full(count, n)
            tail = np.geomspace(n, max(1, n // 10), count).round().astype(np.int64)
            spread = np.linspace(0.05, 0.95, count)
            title = f"| {count} | {n} |"
            yield f"{title} all 50 %", same, np.full(count, 0.5)
            yield f"{title} all 10 %", same, np.full(count, 0.1)
            yield f"{title} 5 % to 95 %", same, spread
            yield f"{title} 5 % to 95 %, sizes {n} down to {tail[-1]}", tail, spread


def wilson_over_rates(n: int, repetitions: int, seed: int) -> float:
    """Coverage of Wilson's interval when each repetition has its own rate, uniform in 0..1."""
    draws = np.random.default_rng(seed)
    rates = draws.uniform(size=repetitions)
    return float(_holds(wilson(draws.binomial(n, rates), n, LEVEL), rates).mean())


def false_alarms(count: int, n: int, rate: float, repetitions: int, seed: int) -> float:
    """Share of repetitions with equal classes in which their p-value is below 5 %."""
    hits = np.random.default_rng(seed).binomial(n, rate, (repetitions, count))
    sizes = np.full(count, n)
    return float(np.mean([equal_classes_p_value(row, sizes) <= 0.05 for row in hits]))


def _holds(ends: tuple[Rates, Rates], truth: Rates) -> npt.NDArray[np.bool_]:
    return (ends[0] <= truth) & (truth <= ends[1])


def main(repetitions: int = 10_000) -> None:
    """Print three Markdown tables."""
    error = 100 * np.sqrt(LEVEL * (1 - LEVEL) / repetitions)
    print(f"{repetitions} repetitions; simulation error of 95 %: ±{error:.2f} points (1 sigma)\n")
    print(
        "| K | n | true accuracies | Wilson, one class | exact, one class | exact, all classes "
        "| simultaneous, all classes | exact of the class that looks worst | worst interval "
        "| its mean width |"
    )
    print("|" + " ---: |" * 2 + " --- |" + " ---: |" * 7)
    for seed, (title, sizes, rates) in enumerate(settings()):
        found = simulate(sizes, rates, repetitions, seed)
        shares = [
            found.wilson.mean(),
            found.exact.mean(),
            found.all_by_exact,
            found.all_by_simultaneous,
            found.worst_by_choice,
            found.worst_by_interval,
            found.worst_width,
        ]
        print(title, "|", " | ".join(f"{100 * share:.1f}" for share in shares), "|", flush=True)
    print("\n| n | Wilson averaged over rates |\n| ---: | ---: |")
    for n in PER_CLASS:
        print(f"| {n} | {wilson_over_rates(n, 20 * repetitions, n):.1%} |")
    print("\n| K | n | common accuracy | p ≤ 5 % among equal classes |\n" + "|" + " ---: |" * 4)
    for count in CLASSES:
        for n in PER_CLASS:
            for rate in (0.1, 0.5):
                share = false_alarms(count, n, rate, repetitions // 5, n)
                print(f"| {count} | {n} | {rate:.0%} | {share:.1%} |")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2]))
