"""The interval of the worst class's change: against its equations, and by simulation."""

import importlib.util

import numpy as np
import pytest
from places import ROOT
from refusals import refused
from scipy import stats

from classwise.statistics.exact_change import lower_bound, upper_bound
from classwise.statistics.worst_change import worst_change_interval

_FILE = ROOT / "benchmarks" / "gate.py"
_SPEC = importlib.util.spec_from_file_location("gate_benchmark", _FILE)
benchmark = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(benchmark)


def transcribed(sizes, hits, lost, won, level):
    """The equations with plain loops and scipy."""
    error = 1 - level
    present = [k for k, n in enumerate(sizes) if n]
    if len(present) == 1:
        one = lost[present[0]], won[present[0]], sizes[present[0]], error / 2
        return float(lower_bound(*one)), float(upper_bound(*one))

    def ends(right, k):
        test = stats.binomtest(right[k], sizes[k])
        low = test.proportion_ci(1 - error / 4, "exact").low
        return low, test.proportion_ci(1 - error / 4 / len(present), "exact").high

    after = [h - b + c for h, b, c in zip(hits, lost, won, strict=True)]
    before_ends = {k: ends(hits, k) for k in present}
    after_ends = {k: ends(after, k) for k in present}
    highest, highest_after = (min(e[1] for e in d.values()) for d in (before_ends, after_ends))
    ups = [float(upper_bound(lost[k], won[k], sizes[k], error / 4))
           for k in present if before_ends[k][0] <= highest]  # fmt: skip
    downs = [float(lower_bound(lost[k], won[k], sizes[k], error / 4))
             for k in present if after_ends[k][0] <= highest_after]  # fmt: skip
    lowest, lowest_after = (min(e[0] for e in d.values()) for d in (before_ends, after_ends))
    return max(lowest_after - highest, min(downs)), min(highest_after - lowest, max(ups))


CASES = {
    "one class": ([80], [40], [9], [3]),
    "one class of two has images": ([0, 80], [0, 40], [0, 9], [0, 3]),
    "a clear worst class": ([100, 100, 100], [20, 60, 70], [3, 9, 1], [8, 0, 20]),
    "another is worst afterwards": ([200, 100], [50, 80], [5, 75], [90, 0]),
    "nearly equal, unequal sizes, one empty": ([90, 10, 0, 300], [45, 5, 0, 160],
                                               [9, 1, 0, 8], [4, 3, 0, 30]),
    "nothing changed": ([50] * 5, [20, 22, 25, 30, 48], [0] * 5, [0] * 5),
    "the two worst intervals are tighter": ([3, 400], [2, 100], [2, 0], [0, 0]),
}  # fmt: skip


@pytest.mark.parametrize("level", [0.95, 0.8])
@pytest.mark.parametrize("counts", CASES.values(), ids=CASES)
def test_it_is_what_its_equations_say(counts, level):
    found = worst_change_interval(*counts, level)
    np.testing.assert_allclose(found, transcribed(*counts, level), rtol=1e-9, atol=1e-12)


def test_repetitions_lie_on_leading_axes():
    rows = [CASES["a clear worst class"], ([100, 100, 100], [50, 50, 50], [9, 2, 0], [0, 1, 5])]
    together = worst_change_interval(*np.array(rows).transpose(1, 0, 2))
    for k, row in enumerate(rows):
        alone = worst_change_interval(*row)
        np.testing.assert_allclose([end[k] for end in together], alone, rtol=1e-9)


@pytest.mark.parametrize(
    ("before", "after", "n", "apart"),
    [
        ([0.5], [0.45], 100, 0.5),
        ([0.5] * 10, [0.4, *[0.5] * 9], 100, 0.5),
        ([0.2, 0.5, 0.6], [0.1, 0.5, 0.6], 60, 0.0),
    ],
)
def test_it_covers_and_is_narrower_than_with_all_classes_at_once(before, after, n, apart):
    truth = np.full(len(before), n), np.array(before), np.array(after), apart
    old, new = (
        benchmark.worst_change(interval, *truth, 100, seed=7)
        for interval in (benchmark.as_before, worst_change_interval)
    )
    assert new.covered >= 0.95 - 2 * np.sqrt(0.95 * 0.05 / 100)
    assert new.width < 0.97 * old.width


def test_the_simulation_finds_an_interval_that_is_too_narrow():
    def narrow(sizes, hits, lost, won):
        return worst_change_interval(sizes, hits, lost, won, 0.5)

    truth = np.full(1, 40), np.array([0.5]), np.array([0.45]), 0.5
    assert benchmark.worst_change(narrow, *truth, 100, seed=7).covered < 0.88


def test_the_drop_rule_keeps_its_promise_in_the_simulation_and_the_score_interval_does_not():
    setting = benchmark.Setting(np.full(10, 1000), 0.0, 0.03)
    drops = np.full(10, 0.03)
    exact, score = (
        benchmark.rule(setting, drops, decide, 2000, seed=1).failed
        for decide in (benchmark.exactly, benchmark.by_score)
    )
    error = np.sqrt(0.05 * 0.95 / 2000)
    assert 0 < exact <= 0.05 + 2 * error
    assert score > 0.05 + 4 * error


def test_without_images_there_is_no_worst_class():
    with refused("no class has images"):
        worst_change_interval([0, 0], [0, 0], [0, 0], [0, 0])
