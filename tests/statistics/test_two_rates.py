"""Two rates on different images: beside scipy, a published example, and exact coverage."""

import numpy as np
import pytest
from scipy import stats

from classwise.statistics.two_rates import difference_interval, equal_rates_p_value


def test_the_test_is_fishers():
    random = np.random.default_rng(0)
    for _ in range(40):
        n, m = random.integers(1, 60, 2)
        a, b = random.integers(0, n + 1), random.integers(0, m + 1)
        table = [[a, n - a], [b, m - b]]
        sides = [stats.fisher_exact(table, side).pvalue for side in ("less", "greater")]
        found = float(equal_rates_p_value(a, n, b, m))
        assert found == pytest.approx(min(1, 2 * min(sides)))


def test_it_rejects_equal_rates_no_more_often_than_it_says():
    n, m, rate = 25, 40, 0.3
    a, b = np.meshgrid(np.arange(n + 1), np.arange(m + 1), indexing="ij")
    chance = stats.binom.pmf(a, n, rate) * stats.binom.pmf(b, m, rate)
    p = equal_rates_p_value(a, n, b, m)
    for level in (0.01, 0.05, 0.2):
        assert chance[p <= level].sum() <= level


def test_nothing_is_said_without_images():
    assert np.isnan(equal_rates_p_value([0], [0], [1], [5])).all()
    assert np.isnan(difference_interval([0], [0], [1], [5])).all()


@pytest.mark.parametrize(
    ("a", "n", "b", "m", "low", "high"),
    # Newcombe (1998), table II, method 10
    [
        (56, 70, 48, 80, 0.0524, 0.3339),
        (9, 10, 3, 10, 0.1705, 0.8090),
        (10, 10, 0, 20, 0.6791, 1.0),
    ],
)
def test_published_examples(a, n, b, m, low, high):
    found = difference_interval([a], [n], [b], [m])
    assert [float(end[0]) for end in found] == pytest.approx([low, high], abs=6e-5)


@pytest.mark.parametrize(("p", "q"), [(0.1, 0.3), (0.5, 0.5), (0.05, 0.05)])
def test_its_exact_coverage_is_near_the_level(p, q):
    n, m = 60, 60
    a, b = np.meshgrid(np.arange(n + 1), np.arange(m + 1), indexing="ij")
    chance = stats.binom.pmf(a, n, p) * stats.binom.pmf(b, m, q)
    low, high = difference_interval(a, n, b, m)
    assert 0.94 <= chance[(low <= p - q) & (p - q <= high)].sum() <= 0.99
