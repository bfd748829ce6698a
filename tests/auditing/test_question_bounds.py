"""What an answer must have seen: the bound itself, not how seldom a simulation breaks it."""

import math

import numpy as np
import pytest

from classwise.auditing.question import Standing
from classwise.statistics.evidence import evidence

SIZE, BAR, ALPHA = 100, 0.3, 0.05


def first_enough(least):
    """How many wrong answers in a row bring log E_below to `least`."""
    seen = np.arange(SIZE + 1)
    below = evidence(0, seen, SIZE, round(BAR * SIZE))[0]
    return int(np.flatnonzero(below >= least)[0])


def standing(seen, classes, empty=0):
    """One class that was never right, others without a single look, and some without images."""
    looked = np.array([seen, *[0] * (classes - 1 + empty)])
    sizes = np.array([SIZE] * classes + [0] * empty)
    return Standing(0 * looked, looked, sizes, BAR, 1 - ALPHA)


@pytest.mark.parametrize("classes", [1, 2, 10, 100])
def test_a_no_needs_evidence_of_k_over_alpha(classes):
    enough = first_enough(math.log(classes / ALPHA))
    assert np.isnan(standing(enough - 1, classes).answer())
    assert standing(enough, classes).answer() == 0


def test_more_classes_need_more():
    needed = [first_enough(math.log(classes / ALPHA)) for classes in (1, 2, 10, 100)]
    assert needed == sorted(set(needed))


def test_classes_without_images_cannot_be_wrong_and_cost_nothing():
    enough = first_enough(math.log(2 / ALPHA))
    assert standing(enough, 2, empty=50).answer() == 0


def test_a_yes_needs_evidence_of_one_over_alpha_in_every_class():
    seen = np.arange(SIZE + 1)
    meets = evidence(seen, seen, SIZE, round(BAR * SIZE))[1]
    enough = int(np.flatnonzero(meets >= -math.log(ALPHA))[0])
    for classes in (1, 2, 10, 100):
        for looked, answer in ((enough - 1, np.nan), (enough, 1.0)):
            all_right = np.full(classes, looked)
            found = Standing(all_right, all_right, np.full(classes, SIZE), BAR, 1 - ALPHA).answer()
            assert np.array_equal(found, answer, equal_nan=True)


@pytest.mark.parametrize(("bar", "size"), [(0.07, 100), (0.14, 50), (0.55, 100), (0.29, 100)])
def test_a_bar_that_is_a_whole_number_of_images_is_met_by_as_many(bar, size):
    whole = round(bar * size)
    for hits, answer in ((whole, 1), (whole - 1, 0)):
        found = Standing(np.array([hits]), np.array([size]), np.array([size]), bar)
        assert found.answer() == answer


def test_some_of_these_bars_are_rounded_up():
    assert 0.07 * 100 > 7  # else the test above would say nothing
