"""CFA and its part CCR against straight loops."""

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
)
from refusals import refused

from classwise.classes.counts import ClassCounts
from classwise.classes.settings import TRAIN_ROBUST, Chain, Feedback
from classwise.methods import at, ccm, ccr, cfa, fawa, trades
from classwise.methods.wei2023_cfa import CalibratedBeta, CalibratedMargin
from classwise.objective import Outer, total
from classwise.recipe_text import parse_recipe
from classwise.slots import Average, Gate

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
            ("fawa(gate=best)", "'threshold' or 'share'"),
            ("cfa(share=0, gate=share)", "greater than 0"),
            ("fawa(share=1.1, gate=share)", "less than or equal to 1"),
        ],
    )
    def test_values_out_of_range_name_the_range(self, call, allowed):
        with refused(call.split("=")[0], allowed):
            parse_recipe(f"trades+{call}")


def test_a_resumed_run_is_the_straight_one(tmp_path, tiny, monkeypatch):
    text = "trades(steps=2)+cfa(threshold=0, start=1)"
    straight = quick_train(text, tmp_path / "straight", tiny())
    resumed = interrupted_train(text, tmp_path / "resumed", tiny(), monkeypatch, epoch=2)
    assert files(straight) == files(resumed)
