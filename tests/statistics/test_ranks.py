"""Agreement of orders beside scipy, with ties, and for many models and draws at once."""

import itertools

import numpy as np
import pytest
from refusals import refused
from scipy import stats

from classwise.statistics.ranks import kendall, random_agreement, spearman, worst_overlap


def made(seed, models=4, classes=9, ties=False):
    rates = np.random.default_rng(seed).random((models, classes))
    return np.round(rates, 1) if ties else rates


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_all_pairs_are_scipys(seed, ties):
    rates = made(seed, ties=ties)
    rho, tau = spearman(rates), kendall(rates)
    for i, j in itertools.product(range(4), repeat=2):
        assert rho[i, j] == pytest.approx(stats.spearmanr(rates[i], rates[j]).statistic)
        assert tau[i, j] == pytest.approx(stats.kendalltau(rates[i], rates[j]).statistic)


def test_draws_lie_on_the_first_axis():
    many = np.stack([made(seed, ties=True) for seed in range(6)])
    for measure in (spearman, kendall, lambda rates: worst_overlap(rates, 2)):
        each = np.stack([measure(one) for one in many])
        assert np.allclose(measure(many), each)


def test_many_classes_are_counted_exactly():
    rates = np.random.default_rng(0).random((2, 1500))
    found = kendall(rates)[0, 1]
    assert found == pytest.approx(stats.kendalltau(*rates).statistic, abs=1e-12)


def test_no_order_no_agreement():
    rates = np.array([[0.5, 0.5, 0.5], [0.1, 0.2, 0.3]])
    for measure in (spearman, kendall):
        found = measure(rates)
        assert np.isnan(found[0]).all()
        assert found[1, 1] == 1


def test_overlap_is_that_of_the_sets():
    rates = made(3, classes=12)
    for count in (1, 3, 11):
        worst = [set(np.argsort(row)[:count]) for row in rates]
        for i, j in itertools.product(range(4), repeat=2):
            shared = len(worst[i] & worst[j]) / count
            assert worst_overlap(rates, count)[i, j] == pytest.approx(shared)


def test_equal_classes_share_the_last_place():
    # of two worst classes the first run has one for sure, and half of each of two
    found = worst_overlap(np.array([[0.1, 0.2, 0.2, 0.9], [0.1, 0.2, 0.8, 0.9]]), 2)
    assert found.tolist() == [[1, 0.75], [0.75, 1]]


def test_what_is_no_order_is_refused():
    with refused("three classes"):
        spearman([[0.1, 0.2], [0.2, 0.1]])
    for count in (0, 3):
        with refused("from 1 to 2"):
            worst_overlap([[0.1, 0.2, 0.3]], count)


@pytest.mark.parametrize("classes", [4, 6])
def test_agreement_by_chance_is_that_of_all_permutations(classes):
    order = np.arange(classes)
    every = [stats.spearmanr(order, p).statistic for p in itertools.permutations(order)]
    exact = np.quantile(every, 0.95, method="higher")
    assert random_agreement(classes) == pytest.approx(exact)
