"""The averages that a gate opens, against straight loops."""

import pytest
import torch
from boundaries import (
    files,
    interrupted_train,
    quick_train,
    same_weights,
    weights,
)
from refusals import refused
from torch import nn

from classwise.classes.counts import ClassCounts
from classwise.methods import at, cfa, ema
from classwise.recipe_text import parse_recipe
from classwise.slots import Average, Gate, ShareGate
from classwise.training.average import RunningAverage, shut_gates


def counts_with(accuracy):
    """A hundred samples of each class, of which this share is right; nan: no sample at all."""
    size = len(accuracy)
    table = torch.zeros(size, size, dtype=torch.int64)
    for k, share in enumerate(accuracy):
        if share == share:
            table[k, k] = round(100 * share)
            table[k, (k + 1) % size] = 100 - round(100 * share)
    return ClassCounts(table)


def opened(gate, *epochs):
    """Whether the gate lets the last of these epochs in."""
    average, model = RunningAverage(Average("fawa", 0.85, 0, gate)), nn.Linear(1, 1)
    for number, valid in enumerate(epochs, start=1):
        before, average = average, average.update(model, number, 10, valid)
    return average.taken > before.taken


class TestFAWA:
    def test_gate_and_average_equal_a_straight_loop(self):
        rng = torch.Generator().manual_seed(0)
        model = nn.BatchNorm1d(3).double()  # weights, buffers and an integer counter
        average = RunningAverage(Average("fawa", 0.85, 2, Gate(0.2)))
        worst = [0.5, 0.1, 0.3, 0.19, 0.2, 0.0, 0.9]
        opened = [False, False, True, False, True, False, True]  # the first is before the start
        kept = None
        for epoch, (low, is_due) in enumerate(zip(worst, opened, strict=True), start=1):
            with torch.no_grad():
                model.weight.copy_(torch.randn(3, generator=rng))
                model.running_var.copy_(torch.rand(3, generator=rng))
                model.num_batches_tracked += 1
            live = {name: value.clone() for name, value in model.state_dict().items()}
            if is_due and kept is None:
                kept = live
            elif is_due:
                kept = {
                    name: [0.85 * a + 0.15 * b for a, b in zip(old, live[name], strict=True)]
                    for name, old in kept.items()
                    if name != "num_batches_tracked"
                }
            average = average.update(model, epoch, 10, counts_with([0.95, low, 1.0]))
            assert average.taken == sum(opened[:epoch])
            assert (average.weights is None) == (kept is None)
            for name in ("weight", "bias", "running_mean", "running_var") if kept else ():
                expected = torch.tensor([float(v) for v in kept[name]], dtype=torch.float64)
                torch.testing.assert_close(average.weights[name], expected, rtol=1e-14, atol=1e-15)
        assert average.weights["num_batches_tracked"] == 7

    def test_the_tail_gate_looks_at_the_worst_tenth(self):
        accuracy = [0.0, 0.3] + [0.9] * 18
        valid = counts_with(accuracy)
        assert not opened(Gate(0.1), valid)
        assert opened(Gate(0.15, "tail"), valid)
        assert not opened(Gate(0.16, "tail"), valid)

    def test_a_class_without_validation_samples_does_not_close_the_gate(self):
        assert opened(Gate(0.3), counts_with([0.4, float("nan"), 0.5]))
        assert not opened(Gate(0.0), None)

    def test_threshold_zero_is_ema_bit_for_bit(self, tmp_path, tiny):
        text = "at(steps=2)+ema(start=2)+fawa(threshold=0, start=2)"
        run = quick_train(text, tmp_path / "run", tiny(classes=3), epochs=4)
        assert [epoch["averages"] for epoch in run.history] == [
            {"ema": n, "fawa": n} for n in (0, 1, 2, 3)
        ]
        assert same_weights(weights(run, "fawa-last"), weights(run, "ema-last"))
        assert not same_weights(weights(run, "fawa-last"), weights(run))

    def test_a_threshold_nobody_reaches_leaves_no_weights_behind(self, tmp_path, tiny):
        run = quick_train("at(steps=2)+fawa(threshold=1.5, start=0)", tmp_path / "run", tiny())
        assert [epoch["averages"] for epoch in run.history] == [{"fawa": 0}] * 3
        assert all(list(epoch["valid"]) == ["live"] for epoch in run.history)
        assert run.weights == ["best", "best_overall", "last"]

    def test_it_never_touches_training(self, tmp_path, tiny):
        with_average = quick_train("at(steps=2)+fawa(threshold=0)", tmp_path / "a", tiny())
        assert same_weights(
            weights(with_average), weights(quick_train("at(steps=2)", tmp_path / "b", tiny()))
        )

    def test_several_averages_live_side_by_side(self):
        names = [average.name for average in (at() | cfa() | ema()).slots.averages]
        assert sorted(names) == ["ema", "fawa"]


def taken_in(values, share, start, epochs):
    """Epochs that a gate on a share lets in, by the rule as it is written."""
    found = []
    for e in range(1, epochs + 1):
        best = max(values[:e])
        if e >= max(1, start) and best > 0 and values[e - 1] >= share * best:
            found.append(e)
    return found


class TestShareGate:
    @pytest.mark.parametrize("share", [0.3, 0.5, 0.9, 1.0])
    @pytest.mark.parametrize("start", [0, 3])
    def test_equals_a_straight_loop(self, share, start):
        rng = torch.Generator().manual_seed(int(10 * share) + start)
        values = [0.0, 0.0, *(round(v, 2) for v in torch.rand(10, generator=rng).tolist())]
        average = RunningAverage(Average("fawa", 0.85, start, ShareGate(share)))
        model, found = nn.Linear(1, 1), []
        for epoch, low in enumerate(values, start=1):
            before, average = (
                average,
                average.update(model, epoch, 12, counts_with([1.0, low, 0.99])),
            )
            if average.taken > before.taken:
                found.append(epoch)
        assert found == taken_in(values, share, start, 12)
        assert 0 < len(found) < 12
        assert average.best == pytest.approx(max(values))

    def test_below_twenty_classes_it_looks_at_the_worst_and_from_there_at_the_worst_tenth(self):
        for count, expected in ((19, 0.1), (20, 0.2)):
            valid = counts_with([0.1, 0.3] + [0.9] * (count - 2))
            assert ShareGate(0.5).value(valid) == pytest.approx(expected)
        missing = counts_with([0.1, float("nan")] + [0.9] * 18)
        assert ShareGate(0.5).value(missing) == pytest.approx((0.1 + 0.9) / 2)

    def test_where_every_class_stays_at_nothing_it_stays_shut(self):
        nothing = counts_with([0.5, 0.0])
        assert not opened(ShareGate(0.01), nothing)
        assert not opened(ShareGate(0.01), None)
        assert opened(ShareGate(1.0), nothing, counts_with([0.5, 0.01]))

    def test_it_opens_where_the_papers_gate_cannot(self):
        many = [counts_with([0.0] * 9 + [low] + [0.6] * 90) for low in (0.0, 0.3, 0.4, 0.1)]
        assert not any(opened(Gate(0.2, on), *many[:3]) for on in ("worst", "tail"))
        assert opened(ShareGate(0.5), *many[:2])
        assert opened(ShareGate(0.5), *many[:3])
        assert not opened(ShareGate(0.5), *many)

    @pytest.mark.parametrize("method", ["fawa", "cfa"])
    def test_defaults_and_options(self, method):
        def gate(options):
            return parse_recipe(f"at+{method}({options})").slots.averages[0].gate

        assert gate("") == gate("gate=threshold") == Gate(0.2, "worst")
        assert gate("gate=share") == gate("gate=share, share=0.5") == ShareGate(0.5)
        assert gate("gate=share, share=0.8") == ShareGate(0.8)
        for options, words in (
            ("gate=share, threshold=0.2", ("threshold=0.2", "gate=threshold")),
            ("gate=share, on=worst", ("on='worst'", "gate=threshold")),
            ("share=0.5", ("share=0.5", "gate=share")),
        ):
            with refused(method, *words):
                gate(options)

    def test_a_record_gives_the_recipe_back(self, tmp_path, tiny):
        text = "at(steps=1)+fawa(gate=share, share=0.6, start=1)"
        run = quick_train(text, tmp_path / "run", tiny(classes=3), epochs=1)
        assert run.recipe == parse_recipe(text)

    def test_a_resumed_run_is_the_straight_one(self, tmp_path, tiny, monkeypatch):
        text = "at(steps=2)+cfa(gate=share, share=0.9, start=1)"
        data = tiny(per_class=40, classes=3)
        options = {
            "epochs": 6,
            "eps": 0.05,
            "optimiser": "adamw",
            "lr": 0.02,
            "schedule": "constant",
            "model": "cnn(width=4)",
        }
        straight = quick_train(text, tmp_path / "straight", data, **options)
        taken = [record["averages"]["fawa"] for record in straight.history]
        assert 0 < taken[-2] == taken[-1]  # the last epoch falls behind the best before it
        for epoch in (2, 6):
            where = tmp_path / f"resumed {epoch}"
            resumed = interrupted_train(text, where, data, monkeypatch, epoch, **options)
            assert files(straight) == files(resumed)


class TestShutGates:
    def said(self, capfd):
        return [line for line in capfd.readouterr().err.splitlines() if "still shut" in line]

    def test_a_gate_still_shut_at_half_the_run_is_told_once(self, tmp_path, tiny, capfd):
        text = "at(steps=1)+fawa(threshold=1.5)"
        quick_train(text, tmp_path / "run", tiny(), epochs=5)
        (line,) = self.said(capfd)
        for words in ("fawa", "after 3 of 5 epochs", "150 %", "gate=share", "lower threshold"):
            assert words in line

    def test_it_says_how_far_the_worst_class_came(self):
        average = RunningAverage(Average("fawa", 0.85, 0, Gate(0.2)))
        for epoch, low in enumerate((0.05, 0.12, 0.07), start=1):
            average = average.update(nn.Linear(1, 1), epoch, 6, counts_with([0.9, low]))
        assert list(shut_gates([average], 2, 6)) == []
        ((name, words),) = shut_gates([average], 3, 6)
        assert name == "fawa"
        assert "12.0 %" in words
        open_one = average.update(nn.Linear(1, 1), 4, 6, counts_with([0.9, 0.2]))
        assert list(shut_gates([open_one], 4, 6)) == []

    def test_it_says_what_kept_a_gate_on_a_share_shut(self):
        nothing = RunningAverage(Average("fawa", 0.85, 2, ShareGate(0.5)), best=0.0)
        assert "above 0 %" in next(shut_gates([nothing], 3, 6))[1]
        early = RunningAverage(Average("fawa", 0.85, 2, ShareGate(0.5)))
        for epoch, low in enumerate((0.4, 0.1, 0.1), start=1):
            early = early.update(nn.Linear(1, 1), epoch, 6, counts_with([0.9, low]))
        assert "40.0 % on validation data before it began" in next(shut_gates([early], 3, 6))[1]

    def test_an_average_that_has_not_begun_is_not_shut(self):
        late = RunningAverage(Average("fawa", 0.85, 0.75, Gate(0.2)), best=0.1)
        assert list(shut_gates([late], 7, 12)) == []
        assert len(list(shut_gates([late], 9, 12))) == 1
        assert list(shut_gates([RunningAverage(Average("ema", 0.85, 0))], 9, 12)) == []

    def test_a_resumed_run_tells_it_again(self, tmp_path, tiny, monkeypatch, capfd):
        text = "at(steps=1)+fawa(threshold=1.5)"
        interrupted_train(text, tmp_path / "run", tiny(), monkeypatch, epoch=4, epochs=5)
        first, second = self.said(capfd)
        assert "after 3 of 5" in first
        assert "after 3 of 5" in second

    def test_an_open_gate_is_not_worth_a_word(self, tmp_path, tiny, capfd):
        quick_train("at(steps=1)+fawa(threshold=0)", tmp_path / "run", tiny(), epochs=4)
        assert self.said(capfd) == []
