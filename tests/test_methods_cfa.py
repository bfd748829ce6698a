from dataclasses import replace

import pytest
import torch
from boundaries import (
    draw_confusion,
    files,
    interrupted_train,
    plain_settings,
    quick_train,
    rates,
    same_weights,
    weights,
)
from refusals import refused
from torch import nn

from classwise.classes.counts import ClassCounts
from classwise.classes.settings import TRAIN_ROBUST, Chain, Feedback
from classwise.methods import at, ccm, ccr, cfa, ema, fawa, trades
from classwise.methods.wei2023_cfa import CalibratedBeta, CalibratedMargin
from classwise.objective import Outer, total
from classwise.recipe import parse_recipe
from classwise.slots import Average, Gate
from classwise.training.average import RunningAverage, is_open

SIZES = [2, 3, 10]


class TestCCR:
    @pytest.mark.parametrize("num_classes", SIZES)
    @pytest.mark.parametrize("floor", [0.0, 0.5, 1.0])
    @pytest.mark.parametrize("missing", [(), (1,)])
    def test_equals_a_straight_loop(self, num_classes, floor, missing):
        table = draw_confusion(num_classes, 3, missing)
        feedback = Feedback(1, 10, table.sum(1), {TRAIN_ROBUST: ClassCounts(table)})
        base = plain_settings(num_classes, beta=6.0)
        found, _ = CalibratedBeta(floor).update(base, feedback)
        robust, _ = rates(table)
        for k in range(num_classes):
            assert found.beta[k].item() == pytest.approx((floor + robust[k]) * 6, rel=1e-14)
        assert torch.equal(found.margin, base.margin)

    @pytest.mark.parametrize("num_classes", SIZES)
    def test_the_loss_of_a_sample_is_normalised_by_its_own_beta(self, num_classes):
        rng = torch.Generator().manual_seed(1)
        labels = torch.randint(num_classes, (7,), generator=rng)
        clean, robust = torch.randn(2, 7, num_classes, generator=rng, dtype=torch.float64)
        betas = torch.rand(num_classes, generator=rng, dtype=torch.float64) * 6
        settings = replace(plain_settings(num_classes), beta=betas)
        objective = parse_recipe("trades+ccr").slots.objective
        outer = Outer({"clean": clean, "robust": robust}, labels, settings.rows(labels))
        expected = 0.0
        for z, z_adv, y in zip(clean, robust, labels.tolist(), strict=True):
            p, q, beta = z.softmax(0), z_adv.softmax(0), betas[y].item()
            kl = sum((p[j] * (p[j] / q[j]).log()).item() for j in range(num_classes))
            expected += (-p[y].log().item() + beta * kl) / (1 + beta) / 7
        assert total(objective.terms(outer), "mean").item() == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize("num_classes", SIZES)
    @pytest.mark.parametrize("floor", [0.25, 0.5])
    def test_accuracy_of_one_minus_the_floor_is_normalised_trades(self, num_classes, floor):
        sizes = 4 * torch.arange(1, num_classes + 1)
        hits = ((1 - floor) * sizes).long()
        table = torch.diag(hits) + torch.diag(sizes - hits)[:, torch.arange(num_classes) - 1]
        recipe = parse_recipe(f"trades+ccm(margin_floor={floor})+ccr(beta_floor={floor})")
        feedback = Feedback(2, 10, sizes, {TRAIN_ROBUST: ClassCounts(table)})
        base = plain_settings(num_classes)
        found, _ = Chain(recipe.slots.policies).update(base, feedback)
        torch.testing.assert_close(found.beta, base.beta, rtol=1e-15, atol=0)
        torch.testing.assert_close(found.margin, base.margin, rtol=1e-15, atol=0)
        assert recipe.slots.objective == parse_recipe("trades(normalised=true)").slots.objective

    def test_a_base_without_beta_is_refused_with_both_names(self):
        for base in ("at", "clean"):
            with refused("ccr", base, "trades"):
                parse_recipe(f"{base}+ccr")


class TestCFA:
    @pytest.mark.parametrize("base", ["at", "trades"])
    def test_is_the_sum_of_its_parts(self, base):
        parts = "ccm+fawa" if base == "at" else "ccm+ccr+fawa"
        whole, summed = parse_recipe(f"{base}+cfa"), parse_recipe(f"{base}+{parts}")
        assert set(whole.slots.policies) == set(summed.slots.policies)
        for slot in ("averages", "objective", "beta", "inner"):
            assert getattr(whole.slots, slot) == getattr(summed.slots, slot)

    def test_options_reach_the_parts(self):
        call = "cfa(margin_floor=0.6, beta_floor=0.2, calibrate=10, threshold=0.1, on=tail, "
        recipe = parse_recipe(f"trades+{call}decay=0.7, start=5)")
        assert set(recipe.slots.policies) == {CalibratedMargin(0.6, 10), CalibratedBeta(0.2, 10)}
        assert recipe.slots.averages == (Average("fawa", 0.7, 5, Gate(0.1, "tail")),)

    def test_the_papers_floors_follow_the_base(self):
        found = {
            base: parse_recipe(f"{base}+cfa").canonical["cfa"] for base in ("at", "trades", "fat")
        }
        floors = {base: (o["margin_floor"], o["beta_floor"]) for base, o in found.items()}
        assert floors == {"at": (0.5, None), "trades": (0.3, 0.5), "fat": (0.7, None)}

    @pytest.mark.parametrize("part", [ccm, ccr, fawa])
    def test_its_own_parts_beside_it_are_refused_with_both_names(self, part):
        with refused("cfa", part().name, "both set"):
            trades() | cfa() | part()

    def test_frl_beside_it_is_refused_with_both_names(self):
        with refused("cfa", "frl", "margin"):
            parse_recipe("trades+cfa+frl")

    def test_a_beta_floor_without_a_beta_is_refused(self):
        with refused("cfa", "at", "beta"):
            at() | cfa(beta_floor=0.5)

    @pytest.mark.parametrize(
        ("call", "allowed"),
        [
            ("ccr(beta_floor=-0.1)", "greater than or equal to 0"),
            ("cfa(margin_floor=0)", "greater than 0"),
            ("cfa(beta_floor=2)", "less than or equal to 1"),
            ("cfa(decay=1)", "less than 1"),
            ("fawa(threshold=-0.2)", "greater than or equal to 0"),
            ("fawa(on=best)", "'worst' or 'tail'"),
        ],
    )
    def test_values_out_of_range_name_the_range(self, call, allowed):
        with refused(call.split("=")[0], allowed):
            parse_recipe(f"trades+{call}")


def counts_with(accuracy):
    """A hundred samples of each class, of which this share is right; nan: no sample at all."""
    size = len(accuracy)
    table = torch.zeros(size, size, dtype=torch.int64)
    for k, share in enumerate(accuracy):
        if share == share:
            table[k, k] = round(100 * share)
            table[k, (k + 1) % size] = 100 - round(100 * share)
    return ClassCounts(table)


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
        assert not is_open(Gate(0.1), valid)
        assert is_open(Gate(0.15, "tail"), valid)
        assert not is_open(Gate(0.16, "tail"), valid)

    def test_a_class_without_validation_samples_does_not_close_the_gate(self):
        assert is_open(Gate(0.3), counts_with([0.4, float("nan"), 0.5]))
        assert not is_open(Gate(0.0), None)

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


def test_a_resumed_run_is_the_straight_one(tmp_path, tiny, monkeypatch):
    text = "trades(steps=2)+cfa(threshold=0, start=1)"
    straight = quick_train(text, tmp_path / "straight", tiny())
    resumed = interrupted_train(text, tmp_path / "resumed", tiny(), monkeypatch, epoch=2)
    assert files(straight) == files(resumed)
