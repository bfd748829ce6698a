"""Evidence that may be looked at after every image."""

import itertools
import math

import numpy as np
import pytest

from classwise.statistics.evidence import confidence_sequence, evidence


def likelihood(total, size, hits, misses):
    """Chance of one given order of hits and misses, drawn without returning."""
    chance, right, wrong, left = 1.0, total, size - total, size
    for is_hit in [True] * hits + [False] * misses:
        chance *= (right if is_hit else wrong) / left
        right, wrong, left = right - is_hit, wrong - (not is_hit), left - 1
    return chance


def logarithm(number):
    return math.log(number) if number > 0 else -math.inf


class TestEvidence:
    def test_it_is_the_likelihood_ratio_of_the_straight_way(self):
        for size, bar in ((6, 2), (9, 5), (5, 5), (4, 1)):
            for hits, misses in itertools.product(range(size + 1), repeat=2):
                if hits + misses > size:
                    continue
                chance = [likelihood(total, size, hits, misses) for total in range(size + 1)]
                low, high = np.mean(chance[:bar]), np.mean(chance[bar:])
                below, meets = evidence(hits, hits + misses, size, bar)
                if low == 0:
                    assert below == -math.inf
                else:
                    expected = low / chance[bar] if chance[bar] else math.inf
                    assert below == pytest.approx(logarithm(expected))
                if high == 0:
                    assert meets == -math.inf
                else:
                    expected = high / chance[bar - 1] if chance[bar - 1] else math.inf
                    assert meets == pytest.approx(logarithm(expected))

    def test_its_mean_stays_at_one_at_the_bar_and_below_one_beyond(self):
        """All orders of a small class, weighed by their chance: the martingale itself."""
        size, bar = 7, 3
        for total in range(bar, size + 1):
            previous = 1.0
            for seen in range(size):
                mean = 0.0
                for hits in range(max(0, seen - (size - total)), min(seen, total) + 1):
                    ways = math.comb(seen, hits) * likelihood(total, size, hits, seen - hits)
                    mean += ways * math.exp(evidence(hits, seen, size, bar)[0])
                assert mean <= previous + 1e-9
                if total == bar and seen <= size - bar:  # later, some orders are impossible
                    assert mean == pytest.approx(1.0)
                previous = mean

    def test_after_the_last_image_all_is_proven(self):
        hits = np.arange(11)
        below, meets = evidence(hits, 10, 10, 4)
        assert np.array_equal(below == math.inf, hits < 4)
        assert np.array_equal(meets == math.inf, hits >= 4)
        low, high = confidence_sequence(hits, 10, 10)
        assert np.array_equal(low, hits / 10)
        assert np.array_equal(high, hits / 10)

    def test_looking_after_every_image_errs_as_seldom_as_promised(self):
        random, size, bar = np.random.default_rng(0), 200, 60
        outcomes = np.zeros((2000, size), int)
        outcomes[:, :bar] = 1  # exactly at the bar
        outcomes = random.permuted(outcomes, axis=1)
        seen = np.arange(1, size)
        hits = outcomes.cumsum(1)[:, :-1]
        below = np.concatenate(
            [evidence(rows, seen, size, bar)[0] for rows in np.array_split(hits, 20)]
        )
        for alpha in (0.05, 0.2):
            wrong = (below >= -math.log(alpha)).any(1).mean()
            assert wrong <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / 2000)
        assert wrong > 0.02  # the bound is not an idle one

    def test_a_confidence_sequence_holds_at_all_times(self):
        random, size, total = np.random.default_rng(0), 100, 35
        outcomes = np.zeros((500, size), int)
        outcomes[:, :total] = 1
        hits = random.permuted(outcomes, axis=1).cumsum(1)
        low, high = confidence_sequence(hits, np.arange(1, size + 1), size, 0.9)
        held = ((low <= total / size) & (total / size <= high)).all(1).mean()
        assert held >= 0.9

    def test_empty_classes_have_no_interval(self):
        low, high = confidence_sequence([0, 1], [0, 2], [0, 10])
        assert np.isnan(low[0])
        assert np.isnan(high[0])
        assert low[1] <= 0.5 <= high[1]
