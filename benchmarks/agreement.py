"""How often the intervals of rank agreement hold the truth: `python benchmarks/agreement.py`.

Two models with class accuracies that are drawn from 0.2 to 0.8: the same, close to each other
(± 0.05), related (± 0.2) or unrelated; 60 % of their verdicts follow a common draw. Printed are the
shares of simulated audits whose 95 % interval holds the true ρ, for the quantiles of the redrawn
values, for the same mirrored at the figure, and for both together, which is what `agree` gives.
"""

from __future__ import annotations

import argparse

import numpy as np

from classwise.statistics.ranks import spearman
from classwise.statistics.redrawn import interval_of, redraw

DISTANCE = {"the same": 0.0, "close": 0.05, "related": 0.2, "unrelated": None}


def verdicts(
    random: np.random.Generator, rates: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and whether two models are right about images that both are asked about."""
    labels = np.repeat(np.arange(rates.shape[1]), n)
    own, shared = random.random((2, len(labels))), random.random(len(labels))
    heights = np.where(random.random(own.shape) < 0.6, shared, own)
    return labels, heights < rates[:, labels]


def held(kind: str, classes: int, n: int, trials: int, draws: int) -> np.ndarray:
    """How many of the trials each of the three intervals was right in."""
    random, found = np.random.default_rng([classes, n]), np.zeros(3)
    for trial in range(trials):
        rates = random.uniform(0.2, 0.8, (2, classes))
        distance = DISTANCE[kind]
        if distance is not None:
            rates[1] = np.clip(rates[0] + distance * random.normal(size=classes), 0.02, 0.98)
        truth = spearman(rates)[0, 1]
        labels, right = verdicts(random, rates, n)
        seen = right.reshape(2, classes, n).mean(2)
        value = spearman(seen)[0, 1]
        drawn = np.concatenate(list(redraw(labels, right, classes, draws, trial)))
        values = spearman(drawn)[:, 0, 1]
        low, high = np.nanquantile(values, [0.025, 0.975])
        both = interval_of(np.array(value), values, 0.95, -1.0, 1.0)
        ends = [(low, high), (2 * value - high, 2 * value - low), (both.low, both.high)]
        found += [bool(a - 1e-9 <= truth <= min(b, 1.0) + 1e-9) for a, b in ends]
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--draws", type=int, default=500)
    asked = parser.parse_args()
    print("| classes | images of each | orders | quantiles | mirrored | both |")
    print("| ---: | ---: | --- | ---: | ---: | ---: |")
    for classes in (5, 10, 30):
        for n in (5, 30, 100, 1000):
            for kind in DISTANCE:
                share = 100 * held(kind, classes, n, asked.trials, asked.draws) / asked.trials
                cells = " | ".join(f"{one:.0f} %" for one in share)
                print(f"| {classes} | {n} | {kind} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
