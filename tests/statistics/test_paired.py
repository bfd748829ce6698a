"""Two models on the same images: the test, its interval and the bootstrap."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pairs import NAMES, pair
from scipy import optimize, stats

from classwise.judging.compare import bootstrap_changes, diff
from classwise.statistics.paired import holm, mcnemar, paired_interval


class TestMcNemar:
    @given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=8))
    def test_it_is_the_binomial_test_of_the_disagreements(self, pairs):
        found = mcnemar(*np.array(pairs).T)
        for (lost, won), p in zip(pairs, found, strict=True):
            both = lost + won
            expected = stats.binomtest(won, both, 0.5).pvalue if both else 1.0
            assert p == pytest.approx(expected, abs=1e-12)

    @given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
    def test_holm_steps_down(self, p_values):
        found, m = holm(p_values), len(p_values)
        order = sorted(range(m), key=lambda k: p_values[k])
        highest = 0.0
        for place, k in enumerate(order):
            highest = max(highest, min(1.0, (m - place) * p_values[k]))
            assert found[k] == pytest.approx(highest)

    def test_a_class_without_images_costs_nothing(self):
        assert holm([0.01, math.nan, 0.04]) == pytest.approx([0.02, math.nan, 0.04], nan_ok=True)

    def test_equal_models_are_rarely_told_apart(self):
        random = np.random.default_rng(0)
        alarms = 0
        for _ in range(400):
            lost = random.binomial(100, 0.1, 10)
            won = random.binomial(100, 0.1, 10)
            alarms += bool((holm(mcnemar(lost, won)) <= 0.05).any())
        assert alarms / 400 <= 0.05


class TestPairedInterval:
    @pytest.mark.parametrize(
        ("lost", "won", "n"), [(2, 10, 100), (10, 2, 100), (0, 0, 30), (0, 7, 20), (5, 5, 12),
                               (20, 0, 20), (1, 0, 44), (3, 8, 1000)],
    )  # fmt: skip
    def test_its_ends_are_where_the_score_test_turns(self, lost, won, n):
        def score(delta):
            """The straight way: maximise the likelihood given delta by brute force."""

            def cost(q):
                chances = (q, q + delta, 1 - 2 * q - delta)
                counts = (lost, won, n - lost - won)
                pairs = zip(counts, chances, strict=True)
                return -sum(k * math.log(max(p, 1e-300)) for k, p in pairs if k)

            low, high = max(0.0, -delta), (1 - delta) / 2
            inner = optimize.minimize_scalar(
                cost, bounds=(low, high), method="bounded", options={"xatol": 1e-12}
            )
            q = min([inner.x, low, high], key=cost)
            return (won - lost - n * delta) ** 2 / (n * (2 * q + delta * (1 - delta)))

        z2 = stats.norm.ppf(0.975) ** 2
        low, high = (float(end[0]) for end in paired_interval([lost], [won], [n]))
        assert low <= (won - lost) / n <= high
        for end, outwards in ((low, -1), (high, 1)):
            if abs(end) < 1 - 1e-6:
                assert score(end) == pytest.approx(z2, rel=1e-4)
                assert score(end + outwards * 1e-3) > z2

    def test_turning_the_pair_around_turns_the_interval(self):
        low, high = paired_interval([3, 0], [9, 4], [50, 60])
        back_low, back_high = paired_interval([9, 4], [3, 0], [50, 60])
        assert back_low == pytest.approx(-high)
        assert back_high == pytest.approx(-low)

    def test_no_images_no_interval(self):
        assert all(np.isnan(end).all() for end in paired_interval([0], [0], [0]))

    @pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
    @pytest.mark.parametrize(("b", "c"), [(0.05, 0.05), (0.02, 0.1), (0.2, 0.3)])
    def test_it_holds_the_truth_as_often_as_it_says(self, level, b, c):
        random = np.random.default_rng(1)
        cells = random.multinomial(100, [b, c, 1 - b - c], 4000)
        low, high = paired_interval(cells[:, 0], cells[:, 1], 100, level)
        covered = ((low <= c - b) & (c - b <= high)).mean()
        assert covered >= level - 0.015


class TestBootstrap:
    def test_it_resamples_images_with_both_verdicts(self):
        random = np.random.default_rng(0)
        first, second = pair(random, [0.3, 0.6, 0.5], [0.45, 0.6, 0.4], 60)
        found = diff(first, second, NAMES, draws=4000)
        changes = []
        for _ in range(1500):
            rates = []
            for k in range(3):
                rows = np.flatnonzero(first.label == k)
                drawn = random.choice(rows, len(rows))
                rates.append((first.correct[drawn].mean(), second.correct[drawn].mean()))
            before, after = zip(*rates, strict=True)
            changes.append((np.mean(after) - np.mean(before), min(after) - min(before)))
        low, high = np.quantile(changes, (0.025, 0.975), axis=0)
        for k, change in enumerate((found.overall, found.drawn_worst)):
            assert change.low == pytest.approx(low[k], abs=0.015)
            assert change.high == pytest.approx(high[k], abs=0.015)

    def test_the_same_seed_gives_the_same_interval_and_another_another(self):
        counts = [np.array(part) for part in ([501, 607], [200, 300], [53, 21], [90, 40])]
        assert bootstrap_changes(*counts) == bootstrap_changes(*counts)
        assert bootstrap_changes(*counts) != bootstrap_changes(*counts, seed=1)

    def test_blocks_do_not_change_what_is_estimated(self):
        many = [np.full(1000, value) for value in (50, 25, 5, 8)]
        overall, _ = bootstrap_changes(*many, draws=2500)
        assert overall.difference == pytest.approx(0.06)
        assert overall.low < 0.06 < overall.high
        spread = math.sqrt((13 / 50 - 0.06**2) / 50_000)
        assert overall.high - overall.low == pytest.approx(2 * 1.96 * spread, rel=0.1)

    def test_a_class_without_images_takes_no_part(self):
        counts = [np.array(part) for part in ([50, 0], [20, 0], [5, 0], [9, 0])]
        alone = [part[:1] for part in counts]
        assert bootstrap_changes(*counts) == bootstrap_changes(*alone)

    @pytest.mark.usefixtures("untouched_random_state")
    def test_no_global_randomness_is_used(self):
        bootstrap_changes(*(np.array([n]) for n in (50, 20, 5, 9)))
