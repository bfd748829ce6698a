"""Correlations of classes and of pairs of classes, and what permutations say of them."""

import itertools

import numpy as np
import pytest
from scipy import stats

from classwise.statistics.permuted import classes_together, pairs_together


def table(random, classes):
    half = random.random((classes, classes))
    return half + half.T


def test_the_correlation_is_scipys():
    random = np.random.default_rng(0)
    one, other = random.random(12), np.round(random.random(12), 1)
    assert classes_together(one, other).rho == pytest.approx(stats.spearmanr(one, other).statistic)
    a, b = table(random, 8), np.round(table(random, 8), 1)
    above = np.triu_indices(8, 1)
    expected = stats.spearmanr(a[above], b[above]).statistic
    assert pairs_together(a, b).rho == pytest.approx(expected)


def test_p_values_are_those_of_all_permutations():
    random = np.random.default_rng(1)
    a = table(random, 5)
    b = a + 0.5 * table(random, 5)
    above = np.triu_indices(5, 1)
    seen = stats.spearmanr(a[above], b[above]).statistic
    every = []
    for order in itertools.permutations(range(5)):
        moved = b[np.ix_(order, order)]
        every.append(abs(stats.spearmanr(a[above], moved[above]).statistic) >= abs(seen) - 1e-9)
    assert pairs_together(a, b, draws=20_000).p_value == pytest.approx(np.mean(every), abs=0.015)


def test_unrelated_tables_seldom_look_related():
    random = np.random.default_rng(2)
    found = [pairs_together(table(random, 8), table(random, 8), 300).p_value for _ in range(150)]
    assert np.mean(np.array(found) <= 0.1) <= 0.17  # pairs share classes; 10 % ± 3 deviations


def test_a_constant_goes_with_nothing():
    found = classes_together(np.ones(5), np.arange(5.0))
    assert np.isnan(found.rho)
    assert np.isnan(found.p_value)
