"""Two audits of the same images."""

import numpy as np
from ledgers import verdicts

NAMES = ("a", "b", "c")


def pair(random, chances_first, chances_second, per_class):
    """Two models that agree as much as their chances allow: one uniform draw decides both."""
    labels = np.repeat(np.arange(len(chances_first)), per_class)
    draw = random.random(len(labels))
    found = []
    for chances in (chances_first, chances_second):
        right = draw < np.asarray(chances)[labels]
        found.append(np.where(right, labels, (labels + 1) % len(chances_first)))
    samples = np.arange(len(labels))
    return [verdicts(samples, predicted=told, labels=labels) for told in found]
