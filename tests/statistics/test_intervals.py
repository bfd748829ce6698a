"""Intervals agree with scipy and hold the truth as often as they say, by sum and by simulation."""

import importlib.util

import numpy as np
import pytest
from places import ROOT
from scipy import stats

from classwise.errors import ClasswiseError
from classwise.statistics.intervals import exact, simultaneous, wilson, worst_interval

_FILE = ROOT / "benchmarks" / "interval_coverage.py"
_SPEC = importlib.util.spec_from_file_location("coverage_benchmark", _FILE)
benchmark = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(benchmark)

REPETITIONS = 1000
ERROR = np.sqrt(0.95 * 0.05 / REPETITIONS)  # one sigma of a simulated 95 %
SETTINGS = list(benchmark.settings())
NAMES = [title.strip("| ").replace(" | ", ", ") for title, _, _ in SETTINGS]


def coverage(interval, n, rates):
    """P(low ≤ p ≤ high) at each rate, summed over every possible count."""
    hits = np.arange(n + 1)
    low, high = interval(hits, n)
    rates = np.asarray(rates)[:, None]
    return (stats.binom.pmf(hits, n, rates) * ((low <= rates) & (rates <= high))).sum(axis=1)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
@pytest.mark.parametrize(("name", "interval"), [("exact", exact), ("wilson", wilson)])
def test_intervals_agree_with_scipy(name, interval, level):
    hits = np.array([0, 1, 3, 7, 10, 0, 60, 1000, 1, 0])
    sizes = np.array([10, 10, 10, 10, 10, 1, 997, 1000, 1, 3])
    found = np.stack(interval(hits, sizes, level), axis=1)
    wanted = [
        stats.binomtest(int(h), int(n)).proportion_ci(level, name)
        for h, n in zip(hits, sizes, strict=True)
    ]
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_simultaneous_is_exact_at_sidaks_level_over_the_classes_with_samples():
    hits, sizes = np.array([3, 0, 9, 50]), np.array([10, 0, 20, 100])
    found = simultaneous(hits, sizes, 0.9)
    wanted = exact(hits, sizes, 0.9 ** (1 / 3))  # three classes have samples
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    assert np.isnan(found[0]).tolist() == [False, True, False, False]


def test_the_worst_interval_of_one_class_is_exact():
    np.testing.assert_allclose(worst_interval([3], [10]), np.ravel(exact([3], [10])), rtol=1e-9)
    with_empty = worst_interval([3, 0], [10, 0])
    np.testing.assert_allclose(with_empty, np.ravel(exact([3], [10])), rtol=1e-9)


def test_the_worst_interval_corrects_upwards_only():
    hits, sizes = np.array([50, 50, 50, 50, 40]), np.full(5, 100)
    low, high = worst_interval(hits, sizes)
    alone, together = exact(hits, sizes), simultaneous(hits, sizes)
    assert high == together[1].min()
    assert high > alone[1].min()
    assert together[0].min() < low  # tighter than the ends of the simultaneous intervals
    assert low == pytest.approx(alone[0].min(), abs=1e-3)


def test_intervals_hold_what_was_counted_and_are_whole_at_the_edges():
    hits, sizes = np.arange(8), np.full(8, 7)
    for interval in (wilson, exact, simultaneous):
        low, high = interval(hits, sizes)
        assert np.all((low >= 0) & (low <= hits / 7) & (hits / 7 <= high) & (high <= 1))
        assert (low[0], high[-1]) == (0, 1)
        np.testing.assert_allclose(low, 1 - high[::-1], atol=1e-12)  # right and wrong swap


def test_leading_axes_are_repetitions():
    hits = np.array([[3, 5, 9], [0, 10, 2]])
    sizes = np.array([10, 10, 20])
    for interval in (wilson, exact, simultaneous, worst_interval):
        both = np.stack(interval(hits, sizes))
        rows = np.stack([np.stack(interval(row, sizes)) for row in hits], axis=1)
        np.testing.assert_array_equal(both, rows)


@pytest.mark.parametrize("interval", [wilson, exact, simultaneous, worst_interval])
def test_impossible_counts_and_levels_are_refused(interval):
    for hits, sizes in (([4], [3]), ([-1], [3])):
        with pytest.raises(ClasswiseError, match="between 0 and the number of samples"):
            interval(hits, sizes)
    for level in (0, 1, 95):
        with pytest.raises(ClasswiseError, match=r"a probability such as 0\.95"):
            interval([1], [3], level)


def test_no_samples_at_all_have_no_worst_class():
    assert np.isnan(exact([0], [0])).all()
    with pytest.raises(ClasswiseError, match="no class has samples"):
        worst_interval([0, 0], [0, 0])


@pytest.mark.parametrize("n", [1, 2, 10, 100, 1000])
def test_exact_intervals_cover_at_every_rate(n):
    found = coverage(exact, n, np.linspace(0, 1, 501))
    assert found.min() >= 0.95 - 1e-9
    assert n < 100 or found.mean() < 0.97  # and are not idly wide


def ends_for_the_worst(count, level=0.95):
    """Levels of the exact intervals whose low and high ends the worst interval takes."""
    high_tail = (1 - level ** (1 / count)) / 2
    low_tail = 1 - high_tail - level / (1 - high_tail) ** (count - 1)
    return 1 - 2 * low_tail, 1 - 2 * high_tail


@pytest.mark.parametrize("count", [2, 10, 100])
def test_the_worst_interval_takes_the_least_of_both_ends(count):
    sizes = np.linspace(5, 200, count).astype(int)
    hits = np.random.default_rng(count).binomial(sizes, 0.3, (20, count))
    low_level, high_level = ends_for_the_worst(count)
    low, high = worst_interval(hits, sizes)
    np.testing.assert_allclose(low, exact(hits, sizes, low_level)[0].min(axis=1), rtol=1e-9)
    np.testing.assert_allclose(high, exact(hits, sizes, high_level)[1].min(axis=1), rtol=1e-9)


@pytest.mark.parametrize("n", [10, 100, 1000])
@pytest.mark.parametrize("count", [2, 10, 100])
def test_all_classes_and_the_worst_are_covered_for_equal_classes_at_every_rate(count, n):
    rates = np.linspace(0, 1, 201)
    hits = np.arange(n + 1)
    chances = stats.binom.pmf(hits, n, rates[:, None])
    low, high = exact(hits, n, 0.95 ** (1 / count))
    one = (chances * ((low <= rates[:, None]) & (rates[:, None] <= high))).sum(axis=1)
    assert (one**count).min() >= 0.95 - 1e-9
    low_level, high_level = ends_for_the_worst(count)
    above = exact(hits, n, high_level)[1] >= rates[:, None]
    too_high = exact(hits, n, low_level)[0] > rates[:, None]
    # missed from below if one class's high end is, from above only if all low ends are
    missed = (chances * (above & too_high)).sum(axis=1) ** count
    assert ((chances * above).sum(axis=1) ** count - missed).min() >= 0.95 - 1e-9


@pytest.mark.parametrize("n", [100, 1000])
def test_wilson_covers_on_the_average_over_rates(n):
    assert 0.93 <= coverage(wilson, n, np.linspace(0.0005, 0.9995, 1000)).mean() <= 0.97
    assert 0.93 <= benchmark.wilson_over_rates(n, 20_000, seed=n) <= 0.97


def test_wilson_does_not_cover_at_every_rate():
    assert coverage(wilson, 100, np.linspace(0.001, 0.999, 999)).min() < 0.93


@pytest.mark.parametrize(("title", "sizes", "rates"), SETTINGS, ids=NAMES)
def test_simulated_coverage(title, sizes, rates):
    found = benchmark.simulate(sizes, rates, REPETITIONS, seed=len(title))
    assert found.exact.mean() >= 0.95 - ERROR
    assert found.exact.min() >= 0.95 - 4 * ERROR  # the least of up to 100 classes
    assert found.all_by_simultaneous >= 0.95 - 3 * ERROR
    assert found.worst_by_interval >= 0.95 - 3 * ERROR


def test_the_simulation_finds_intervals_that_do_not_account_for_many_classes():
    found = benchmark.simulate(np.full(100, 100), np.full(100, 0.5), REPETITIONS, seed=0)
    assert found.all_by_exact < 0.1
    assert found.worst_by_choice < 0.5  # the class that looks worst, taken at its word
