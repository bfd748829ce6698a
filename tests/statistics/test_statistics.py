"""What chance does to the worst class: against simulation, brute force and known figures."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from classwise.classes.counts import ClassCounts
from classwise.errors import ClasswiseError
from classwise.judging.metrics import ClassReport, ConditionReport
from classwise.statistics.intervals import simultaneous
from classwise.statistics.worst_class import (
    equal_classes_p_value,
    expected_worst,
    margin_of_error,
    needed_per_class,
    over_seeds,
    worst_class_warning,
)


def brute_force(sizes, rate):
    """Every outcome of every class, with its probability: (worst rates, chances)."""
    outcomes = np.array(list(itertools.product(*(range(n + 1) for n in sizes))))
    chances = stats.binom.pmf(outcomes, sizes, rate).prod(axis=1)
    return (outcomes / sizes).min(axis=1), chances


# Per class, number of classes, common accuracy: the worst class in per cent, the middle 95 %.
# The table these come from was simulated and has 42.4 in its second row; the sum gives 42.32.
@pytest.mark.parametrize(
    ("n", "count", "rate", "mean", "low", "high"),
    [
        (1000, 10, 0.50, 47.57, 45.6, 49.2),  # CIFAR-10
        (100, 10, 0.50, 42.32, 36, 47),  # 1000 images of it
        (100, 100, 0.25, 14.68, 11, 17),  # CIFAR-100
        (50, 1000, 0.35, 14.54, 10, 18),  # ImageNet's validation images
        (5, 1000, 0.35, 0.00, 0, 0),  # 5000 of them
    ],
)
def test_the_worst_of_equal_classes_looks_bad(n, count, rate, mean, low, high):
    found = expected_worst([n] * count, rate, share=0.95)
    assert 100 * found.mean == pytest.approx(mean, abs=0.005)
    assert (100 * found.low, 100 * found.high) == pytest.approx((low, high))
    draws = np.random.default_rng(n + count).binomial(n, rate, (2000, count)).min(axis=1) / n
    error = draws.std() / math.sqrt(len(draws))
    assert found.mean == pytest.approx(draws.mean(), abs=4 * error + 1e-12)


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("sizes", [[1], [3, 3, 3], [1, 2, 5, 7], [6, 2, 6, 4]])
def test_expected_worst_agrees_with_brute_force(sizes, rate):
    worst, chances = brute_force(sizes, rate)
    found = expected_worst(sizes, rate, share=0.8)
    assert found.mean == pytest.approx(worst @ chances, abs=1e-12)
    for value, below in ((found.low, 0.1), (found.high, 0.9)):
        assert chances[worst <= value].sum() >= below - 1e-9
        assert chances[worst < value].sum() < below


def test_expected_worst_of_one_class_is_its_rate_and_falls_with_more_classes():
    assert expected_worst([37], 0.3).mean == pytest.approx(0.3)
    means = [expected_worst([37] * k, 0.3).mean for k in (1, 2, 10, 100)]
    assert means == sorted(means, reverse=True)
    assert len(set(means)) == 4


def test_classes_without_samples_take_no_part():
    assert expected_worst([10, 0, 20], 0.4) == expected_worst([10, 20], 0.4)
    assert equal_classes_p_value([1, 0, 9], [10, 0, 20]) == equal_classes_p_value([1, 9], [10, 20])
    assert worst_class_warning([1000, 0, 1000], 0.5) is None


@pytest.mark.parametrize(
    ("hits", "sizes"), [([1, 3], [5, 4]), ([2, 2, 3], [6, 3, 4]), ([0, 1], [3, 7]), ([4], [4])]
)
def test_p_value_agrees_with_brute_force(hits, sizes):
    worst, chances = brute_force(sizes, sum(hits) / sum(sizes))
    seen = min(h / n for h, n in zip(hits, sizes, strict=True))
    wanted = chances[worst <= seen + 1e-12].sum()
    assert equal_classes_p_value(hits, sizes) == pytest.approx(wanted, abs=1e-12)


def test_p_value_counts_ties_between_sizes_exactly():
    # 0.29 · 100 is 28.999… in floating point, and 29 hits must count as no better
    hits, sizes = np.array([29, 290, 500]), np.array([100, 1000, 1000])
    rate = hits.sum() / sizes.sum()
    wanted = 1 - stats.binom.sf([29, 290, 290], sizes, rate).prod()
    assert equal_classes_p_value(hits, sizes) == pytest.approx(wanted, rel=1e-9)


def test_p_value_raises_few_false_alarms_and_finds_a_bad_class():
    draws = np.random.default_rng(3)
    sizes = np.full(10, 200)
    equal = [equal_classes_p_value(h, sizes) for h in draws.binomial(200, 0.5, (600, 10))]
    assert 0.005 <= np.mean(np.array(equal) <= 0.05) <= 0.08
    rates = np.where(np.arange(10) == 4, 0.35, 0.5)
    bad = [equal_classes_p_value(h, sizes) for h in draws.binomial(200, rates, (200, 10))]
    assert np.mean(np.array(bad) <= 0.05) > 0.85
    assert equal_classes_p_value([0] + [1000] * 9, [1000] * 10) < 1e-12
    assert equal_classes_p_value([5, 5], [5, 5]) == 1
    assert equal_classes_p_value([0, 0], [5, 5]) == 1


@pytest.mark.parametrize("rate", [0.0, 0.03, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("count", [1, 10, 1000])
@pytest.mark.parametrize("half_width", [0.2, 0.05, 0.01])
def test_needed_per_class_is_the_smallest_that_does(rate, count, half_width):
    n = needed_per_class(count, rate, half_width=half_width)
    assert margin_of_error(n, rate, count) <= half_width
    assert margin_of_error(n - 1, rate, count) > half_width


def test_margin_of_error_is_half_the_simultaneous_interval():
    low, high = simultaneous([30] * 7, [120] * 7, 0.9)
    assert margin_of_error(120, 0.25, 7, 0.9) == pytest.approx((high[0] - low[0]) / 2)


def test_a_warning_says_how_many_are_needed_and_then_falls_silent():
    needed = needed_per_class(10, 0.5)
    assert worst_class_warning([needed] * 10, 0.5) is None
    text = worst_class_warning([needed - 1] * 10, 0.5)
    assert f"with {needed - 1} per class" in text
    assert f"±5 points at this accuracy need {needed} per class" in text


def test_a_warning_counts_the_classes_that_are_too_small():
    text = worst_class_warning([2000] * 40 + [12, 30, 0], 0.5)
    assert "2 of 42 classes have fewer than" in text
    assert "the smallest has 12" in text


def test_a_warning_looks_where_the_interval_is_wide():
    assert worst_class_warning([300] * 10, 0.95) is None
    assert worst_class_warning([300] * 10, 0.95, worst=0.6) is not None
    text = worst_class_warning([2] * 10, 1.0)  # all right, but of two
    assert "each of 10 classes is known to lie between 5.1% and 100.0% (" in text
    assert "is known to lie between 0.0% and 25.8% (" in worst_class_warning([20] * 10, 0.0)


def test_over_seeds_is_the_sample_deviation():
    found = over_seeds([0.2, 0.4, 0.9])
    assert found == pytest.approx((0.5, math.sqrt((0.09 + 0.01 + 0.16) / 2), 3))
    assert f"{found:.1%}" == "50.0% ± 36.1% (n = 3)"
    assert str(found) == "0.500 ± 0.361 (n = 3)"
    alone = over_seeds([0.2])
    assert math.isnan(alone.deviation)
    assert str(alone) == "0.200 (n = 1)"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: expected_worst([10], 50), "between 0 and 1"),
        (lambda: expected_worst([], 0.5), "no class has samples"),
        (lambda: expected_worst([-1], 0.5), "0 or more"),
        (lambda: expected_worst([10], 0.5, share=1), "such as 0.9"),
        (lambda: equal_classes_p_value([3], [2]), "between 0 and the number"),
        (lambda: equal_classes_p_value([3], [2, 5]), "between 0 and the number"),
        (lambda: needed_per_class(0, 0.5), "at least one class"),
        (lambda: needed_per_class(10, 0.5, half_width=5), "between 0 and 0.5"),
        (lambda: needed_per_class(10, 0.5, level=95), "such as 0.95"),
        (lambda: over_seeds([]), "one number for each run"),
        (lambda: over_seeds([0.1, math.nan]), "one number for each run"),
    ],
)
def test_refusals_say_what_is_allowed(call, words):
    with pytest.raises(ClasswiseError, match=words):
        call()


def report_of(hits, sizes):
    """A condition with the given hits; mistakes go to the next class."""
    right = torch.tensor(hits)
    confusion = torch.diag(right) + torch.diag(torch.tensor(sizes) - right).roll(1, dims=1)
    names = tuple("abcdefgh"[: len(hits)])
    return ConditionReport("clean", ClassCounts(confusion), names)


def test_reports_carry_the_statistics():
    report = report_of([40, 50, 0, 60], [100, 100, 0, 120])
    assert report.exact_intervals["a"] == pytest.approx(
        stats.binomtest(40, 100).proportion_ci(0.95, "exact")
    )
    assert report.simultaneous_intervals["a"] == pytest.approx(
        stats.binomtest(40, 100).proportion_ci(0.95 ** (1 / 3), "exact")
    )
    assert report.exact_intervals["c"] is None
    assert report.simultaneous_intervals["c"] is None
    low, high = report.worst_interval
    assert high == pytest.approx(report.simultaneous_intervals["a"][1])
    assert report.simultaneous_intervals["a"][0] < low < report.worst
    assert report.expected_worst_if_equal == expected_worst([100, 100, 120], 150 / 320)
    assert report.equal_classes_p_value == equal_classes_p_value([40, 50, 60], [100, 100, 120])
    assert "3 of 3 classes have fewer than" in report.warning
    assert report_of([900, 950], [1000, 1000]).warning is None


def test_class_reports_show_the_statistics_by_condition():
    one = report_of([40, 50, 60], [100, 100, 120])
    both = ClassReport([one])
    for name in (
        "exact_intervals",
        "simultaneous_intervals",
        "worst_interval",
        "expected_worst_if_equal",
        "equal_classes_p_value",
        "warning",
    ):
        assert getattr(both, name) == {"clean": getattr(one, name)}
