"""How many classes the worst tenth is, and that a class without samples is none of them."""

import numpy as np
import pytest
import torch

from classwise.classes.counts import ClassCounts
from classwise.judging.rates import GroupReport, Tally

SAMPLES = 100


def both(rates, share):
    """The tail as a report tells it, and as a gate of training reads it; None has no samples."""
    sizes = np.array([0 if rate is None else SAMPLES for rate in rates])
    hits = np.array([round((rate or 0) * SAMPLES) for rate in rates])
    names = tuple(f"class {k}" for k in range(len(rates)))
    report = GroupReport("class", "clean", Tally(names, hits, sizes))
    confusion = torch.diag(torch.tensor(hits))
    for k, wrong in enumerate(sizes - hits):
        confusion[k, (k + 1) % len(rates)] += int(wrong)
    return report.tail(share), ClassCounts(confusion).tail(share)


# round(share · classes), by hand: the nearest whole number, at least one
@pytest.mark.parametrize(
    ("classes", "share", "count"),
    [
        (4, 0.1, 1),
        (10, 0.1, 1),
        (14, 0.1, 1),
        (16, 0.1, 2),
        (19, 0.1, 2),
        (24, 0.1, 2),
        (26, 0.1, 3),
        (43, 0.1, 4),
        (100, 0.1, 10),
        (7, 0.5, 4),
        (10, 0.02, 1),
        (3, 1.0, 3),
    ],
)
@pytest.mark.parametrize("empty", [0, 1, 30])
def test_the_worst_share_is_rounded_over_the_classes_that_have_samples(
    classes, share, count, empty
):
    # the worst ones are the last, so that the order of classes is not the order of rates
    rates = [None] * empty + [(90 - k % 90) / SAMPLES for k in range(classes)]
    tail, gate = both(rates, share)
    worst = sorted(range(empty, empty + classes), key=lambda k: (rates[k], k))[:count]
    assert tail.classes == tuple(f"class {k}" for k in worst)
    assert tail.mean == pytest.approx(sum(rates[k] for k in worst) / count)
    assert gate == pytest.approx(tail.mean)


def test_classes_that_tie_keep_their_order():
    tail, _ = both([0.5, 0.2, None, 0.2, 0.2], 0.5)
    assert tail.classes == ("class 1", "class 3")


def test_a_class_that_is_never_right_has_samples():
    tail, gate = both([0.0, 0.8, None], 0.1)
    assert (tail.mean, tail.classes, gate) == (0.0, ("class 0",), 0.0)
