"""The learning rate along a run."""

import math

import pytest
from short_runs import same_tensors, weights_of

from classwise.training.config import TrainConfig
from classwise.training.schedule import learning_rate


class TestSchedules:
    def rates(self, epochs, **options):
        config = TrainConfig(epochs=epochs, lr=0.1, **options)
        return [learning_rate(config, epoch) for epoch in range(epochs)]

    def test_the_step_schedule_drops_tenfold_at_half_and_three_quarters(self):
        found = self.rates(200)
        assert found == pytest.approx([0.1] * 100 + [0.01] * 50 + [0.001] * 50)
        assert self.rates(20, drops=(5, 0.5)) == pytest.approx([0.1] * 5 + [0.01] * 5 + [1e-3] * 10)

    @pytest.mark.parametrize("epochs", range(1, 12))
    def test_short_runs_begin_at_the_full_rate(self, epochs):
        assert self.rates(epochs)[0] == 0.1

    def test_cosine_falls_from_the_full_rate_to_nothing(self):
        config = TrainConfig(epochs=8, lr=0.1, schedule="cosine")
        for epoch in (0, 0.5, 3, 7.25):
            expected = 0.05 * (1 + math.cos(math.pi * epoch / 8))
            assert learning_rate(config, epoch) == pytest.approx(expected)
        assert learning_rate(config, 8) == pytest.approx(0)

    def test_constant_stays(self):
        assert self.rates(5, schedule="constant") == [0.1] * 5

    def test_the_history_says_which_rate_an_epoch_began_with(self, go):
        run = go("run", "clean", epochs=4, schedule="cosine")
        expected = [learning_rate(run.config, epoch) for epoch in range(4)]
        assert [epoch["lr"] for epoch in run.history] == pytest.approx(expected)

    def test_the_rate_reaches_the_optimiser(self, go):
        one = go("one", "clean", epochs=2, drops=(1,), optimiser="sgd")
        other = go("two", "clean", epochs=2, drops=(), optimiser="sgd")
        assert one.history[0]["loss"] == other.history[0]["loss"]
        assert not same_tensors(weights_of(one), weights_of(other))
