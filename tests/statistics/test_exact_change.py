"""Bounds of a paired change: against plain sums over all results, and never wrong too often."""

import math
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from refusals import refused
from scipy import stats

from classwise.statistics.exact_change import lower_bound, surely_above, surely_below, upper_bound
from classwise.statistics.paired import paired_interval, score

TRUTHS = [(q, p) for q in (0, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.8, 1)
          for p in (0, 0.01, 0.05, 0.2, 0.45, 0.9) if q + p <= 1]  # fmt: skip


def results(n):
    return [(b, c) for b in range(n + 1) for c in range(n + 1 - b)]


def chance(b, c, n, q, p):
    """P(b lost, c won), the trinomial."""
    ways = math.factorial(n) // (math.factorial(b) * math.factorial(c) * math.factorial(n - b - c))
    return ways * q**b * p**c * max(1 - q - p, 0.0) ** (n - b - c)


@cache
def order(n, tail):
    """The upper end of every result's score interval."""
    lost, won = np.array(results(n)).T
    ends = paired_interval(lost, won, n, 1 - 2 * tail)[1].tolist()
    return dict(zip(results(n), ends, strict=True))


def likeliest(lost, won, n, change, tail):
    """max over p in its exact interval of P(as low as this), p by p, and over all smaller q."""
    ends = order(n, tail)
    as_low = [one for one in results(n) if ends[one] <= ends[lost, won] + 1e-9]
    low, high = stats.binomtest(won, n).proportion_ci(1 - tail / 10, "exact")
    found = 0.0
    for p in np.linspace(low, high, 60):
        most = min(p - change, 1 - p)
        for q in (most, 0.9 * most, 0.5 * most):
            if q >= 0 and p - q >= change - 1e-12:
                found = max(found, sum(chance(b, c, n, q, p) for b, c in as_low))
    return found


@pytest.mark.parametrize("tail", [0.05, 0.005])
@pytest.mark.parametrize(
    ("lost", "won", "n"),
    [(0, 0, 1), (1, 0, 1), (3, 0, 6), (0, 4, 6), (2, 3, 9), (8, 1, 12), (12, 0, 12), (5, 5, 12)],
)
def test_the_bound_is_where_all_truths_beyond_become_unlikely(lost, won, n, tail):
    high = float(upper_bound([lost], [won], [n], tail)[0])
    assert (won - lost) / n <= high <= 1
    sought = 0.9 * tail
    if high < 1:
        assert likeliest(lost, won, n, high, tail) <= sought
    # rounding and the last cells cost no more than this
    assert likeliest(lost, won, n, high - 0.04, tail) > sought


@pytest.mark.parametrize("tail", [0.25, 0.05, 0.01])
@pytest.mark.parametrize("n", [1, 2, 5, 11, 24])
def test_no_truth_makes_a_bound_wrong_too_often(n, tail):
    """Summed over all results rather than drawn; the score interval fails this."""
    lost, won = np.array(results(n)).T
    high, low = upper_bound(lost, won, n, tail), lower_bound(lost, won, n, tail)
    for q, p in TRUTHS:
        mass = np.array([chance(b, c, n, q, p) for b, c in results(n)])
        assert mass.sum() == pytest.approx(1)
        assert mass[high < p - q - 1e-12].sum() <= tail
        assert mass[low > p - q + 1e-12].sum() <= tail


def test_the_score_interval_would_be_wrong_too_often():
    n, tail = 24, 0.05
    lost, won = np.array(results(n)).T
    high = paired_interval(lost, won, n, 1 - 2 * tail)[1]
    worst = max(
        sum(chance(b, c, n, q, p) for b, c in np.array(results(n))[high < p - q - 1e-12].tolist())
        for q, p in TRUTHS
    )
    assert worst > 1.3 * tail


def at_the_bar(n, limit, tail, decide):
    """P(called broken) of one class that loses `limit` and wins nothing, by sum."""
    lost = np.arange(n + 1)
    return stats.binom.pmf(lost, n, limit)[decide(lost, np.zeros(n + 1), n, -limit, tail)].sum()


@pytest.mark.parametrize("limit", [0.01, 0.03, 0.1])
@pytest.mark.parametrize("n", [10, 100, 1000])
@pytest.mark.parametrize("count", [1, 10])
def test_classes_at_the_bar_break_a_rule_as_seldom_as_promised(n, count, limit):
    one = at_the_bar(n, limit, 0.05 / count, surely_below)
    assert 1 - (1 - one) ** count <= 0.05


def test_the_case_in_which_the_score_interval_breaks_its_promise():
    def by_score(lost, won, n, bar, tail):
        return paired_interval(lost, won, n, 1 - 2 * tail)[1] < bar

    found = [1 - (1 - at_the_bar(1000, 0.03, 0.005, one)) ** 10 for one in (by_score, surely_below)]
    assert found[0] > 0.08
    assert 0.02 < found[1] <= 0.05


@pytest.mark.parametrize("n", [7, 15])
def test_more_lost_and_fewer_won_images_are_as_low_or_lower(n):
    """What the coupling in the proof asks of the order."""
    for tail in (0.05, 0.001):
        ends = order(n, tail)
        for b, c in results(n):
            if b + c < n:
                assert ends[b + 1, c] <= ends[b, c] + 1e-12
                assert ends[b, c + 1] >= ends[b, c] - 1e-12


def test_the_variance_of_the_score_is_that_at_the_likeliest_truth():
    b, c, n, delta = 3.0, 8.0, 40.0, -0.05
    beyond, variance = score(*(np.array([part]) for part in (b, c, n, delta)))
    qs = np.linspace(0.0501, 0.5, 400_001)
    likelihood = b * np.log(qs) + c * np.log(qs + delta) + (n - b - c) * np.log1p(-2 * qs - delta)
    q = qs[likelihood.argmax()]
    assert beyond[0] == c - b - n * delta
    assert variance[0] == pytest.approx(n * (2 * q + delta * (1 - delta)), rel=1e-4)


def test_tests_bounds_and_turning_around_agree():
    random = np.random.default_rng(4)
    sizes = np.array([12, 60, 300, 1000])
    lost = random.binomial(sizes, 0.12)
    won = random.binomial(sizes - lost, 0.05)
    high, low = upper_bound(lost, won, sizes, 0.02), lower_bound(lost, won, sizes, 0.02)
    assert (low < (won - lost) / sizes).all()
    assert surely_below(lost, won, sizes, high, 0.02).all()
    width = high - low
    assert not surely_below(lost, won, sizes, high - 0.02 * width, 0.02).any()
    assert surely_above(lost, won, sizes, low, 0.02).all()
    assert upper_bound(won, lost, sizes, 0.02).tolist() == (-low).tolist()
    for narrow, wide in pairwise((0.2, 0.05, 0.01)):
        assert (upper_bound(lost, won, sizes, narrow) < upper_bound(lost, won, sizes, wide)).all()


def test_repeated_results_and_many_axes_are_asked_once_each():
    lost, won, sizes = np.array([[3, 0], [3, 9]]), np.array([[1, 0], [1, 2]]), np.array([20, 40])
    found = upper_bound(lost, won, sizes, 0.05)
    alone = [[float(upper_bound(b, c, n, 0.05)) for b, c, n in zip(*row, sizes, strict=True)]
             for row in zip(lost, won, strict=True)]  # fmt: skip
    np.testing.assert_allclose(found, alone, rtol=1e-12)


def test_no_images_no_verdict():
    assert np.isnan(upper_bound([0], [0], [0], 0.05)).all()
    assert not surely_below([0], [0], [0], 0.5, 0.05).any()


def test_impossible_questions_are_refused():
    for counts in ([-1, 0, 5], [3, 3, 5]):
        with refused("different images"):
            upper_bound(*counts, 0.05)
    for tail in (0, 0.6, 95):
        with refused("one half"):
            upper_bound(1, 1, 5, tail)
