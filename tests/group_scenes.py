"""Verdicts with groupings, for tests of groups."""

import numpy as np
from ledgers import verdicts

NAMES = ("cat", "dog", "fox")


def some_verdicts(size=300, seed=0, right=0.6):
    draws = np.random.default_rng(seed)
    labels = draws.choice(3, size, p=[0.7, 0.2, 0.1])  # unbalanced
    predicted = np.where(draws.random(size) < right, labels, (labels + 1) % 3)
    samples = draws.permutation(size)  # the order of rows is not that of samples
    return verdicts(samples, predicted=predicted, labels=labels)
