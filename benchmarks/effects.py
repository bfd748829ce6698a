"""Simulate how often intervals of effects hold the truth; print the table of docs/effects.md.

python benchmarks/effects.py [repetitions]
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from classwise.statistics import effects
from classwise.statistics.intervals import Rates

# Parts of an image's luck: what all networks share, what those trained alike share, each one's own.
SHARED, ALIKE, OWN = 0.5, 0.2, 0.3
BETWEEN = 0.06  # deviation of a class from seed to seed, in units of that luck
MEASURES = ("average", "worst", "spread")


class Truth(NamedTuple):
    """Two ways to train: the accuracy of each class, for the left and the right one."""

    name: str
    per_class: int
    seeds: int
    left: Rates
    right: Rates
    between: float = BETWEEN

    def thresholds(self, seeds: int, random: np.random.Generator) -> Rates:
        """What each class of each trained network has over luck: seeds × 2 × classes."""
        middle = stats.norm.ppf(np.stack([self.left, self.right]))
        scale = np.sqrt(1 + self.between**2)  # keeps the accuracies over seeds where they were
        own = random.normal(0, self.between, (seeds, 2, len(self.left)))
        found: Rates = middle * scale + own
        return found


def figures(classes: int) -> list[effects.Of]:
    """Left minus right, for each of the MEASURES."""
    every = (effects.average(np.ones(classes)), effects.worst, effects.spread)
    return [_difference(of) for of in every]


def _difference(of: effects.Measure) -> effects.Of:
    return lambda rates: of(rates[..., 0, :]) - of(rates[..., 1, :])


def true_effects(truth: Truth, random: np.random.Generator) -> list[float]:
    """The mean over very many seeds, on all images there could be."""
    rates = stats.norm.cdf(truth.thresholds(100_000, random))
    return [float(figure(rates).mean()) for figure in figures(len(truth.left))]


def draw(
    truth: Truth, random: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Labels and verdicts (seeds × 2 × images) of one whole experiment."""
    classes = len(truth.left)
    labels = np.repeat(np.arange(classes, dtype=np.int64), truth.per_class)
    luck = random.normal(0, np.sqrt(SHARED), len(labels))
    luck = luck + random.normal(0, np.sqrt(ALIKE), (2, len(labels)))
    luck = luck + random.normal(0, np.sqrt(OWN), (truth.seeds, 2, len(labels)))
    return labels, truth.thresholds(truth.seeds, random)[..., labels] > luck


def coverage(
    truth: Truth, repetitions: int, seed: int, draws: int = 300
) -> dict[str, tuple[float, ...]]:
    """Share that holds the truth, ours, of seeds alone and of images alone, and our mean width."""
    random = np.random.default_rng(seed)
    aims, made = true_effects(truth, random), figures(len(truth.left))
    held = np.zeros((repetitions, len(aims), 4))
    student = stats.t.ppf(0.975, truth.seeds - 1)
    for repetition in range(repetitions):
        labels, right = draw(truth, random)
        found = effects.paired_effects(labels, right, made, len(truth.left), draws=draws)
        for place, (one, aim) in enumerate(zip(found, aims, strict=True)):
            off = abs(one.value - aim)
            by_seeds, by_images = off <= student * one.of_seeds, off <= 1.96 * one.of_images
            held[repetition, place] = one.low <= aim <= one.high, by_seeds, by_images, one.half
    return dict(zip(MEASURES, (tuple(row) for row in held.mean(0)), strict=True))


def truths() -> list[Truth]:
    """Effects there are and are not, classes that are equal and are not."""
    equal, apart = np.full(10, 0.5), np.linspace(0.2, 0.75, 10)
    one_bad = np.where(np.arange(10) == 3, 0.3, 0.5)
    cases = []
    for per_class, seeds in ((1000, 2), (1000, 3), (1000, 5), (100, 3)):
        every = [
            Truth("no effect, classes 20 to 75 %", per_class, seeds, apart, apart),
            Truth("+3 points everywhere", per_class, seeds, apart + 0.03, apart),
            Truth("no effect, equal classes", per_class, seeds, equal, equal),
            Truth("equal classes become one bad class", per_class, seeds, one_bad, equal),
        ]
        cases += every if seeds < 5 else every[:1]
    cases.append(Truth("no effect, seeds hardly differ", 1000, 3, apart, apart, 0.01))
    many = np.linspace(0.02, 0.6, 100)
    cases.append(Truth("no effect, 100 classes 2 to 60 %", 100, 3, many, many))
    return cases


def main() -> None:
    """Print the table."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    print("| truth | images per class | seeds | figure | ours | seeds alone | images alone | ± |")
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |")
    for number, truth in enumerate(truths()):
        for measure, (ours, seeds, images, half) in coverage(truth, repetitions, number).items():
            rates = " | ".join(f"{100 * rate:.1f}" for rate in (ours, seeds, images, half))
            words = f"{truth.name} | {truth.per_class} | {truth.seeds} | {measure}"
            print(f"| {words} | {rates} |", flush=True)


if __name__ == "__main__":
    main()
