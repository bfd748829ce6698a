from dataclasses import replace

import pytest
import torch
from refusals import refused

from classwise.classes.counts import ClassCounts
from classwise.classes.settings import (
    TRAIN_ROBUST,
    Chain,
    ClassSettings,
    Feedback,
)
from classwise.methods.wei2023_cfa import CalibratedMargin
from classwise.recipe_text import parse_recipe

SIZES = [2, 3, 10, 100]


def double_settings(num_classes, margin=0.2, step=0.05, beta=3.0):
    one = torch.ones(num_classes, dtype=torch.float64)
    base = ClassSettings.uniform(num_classes, margin=0, step=0)._each(torch.Tensor.double)
    return replace(base, margin=margin * one, step=step * one, beta=beta * one)


def robust(labels, predicted, num_classes):
    counts = ClassCounts.of(torch.tensor(labels), torch.tensor(predicted), num_classes=num_classes)
    return {TRAIN_ROBUST: counts}


class TestCalibratedMargin:
    @pytest.mark.parametrize("num_classes", SIZES)
    @pytest.mark.parametrize("floor", [0.3, 0.5, 1.0])
    def test_equals_a_straight_loop(self, num_classes, floor):
        rng = torch.Generator().manual_seed(num_classes)
        labels = torch.randint(num_classes, (500,), generator=rng).tolist()
        labels = [y for y in labels if y != 1]  # class 1 has no sample
        guess = torch.randint(num_classes, (len(labels),), generator=rng).tolist()
        predicted = [y if n % 3 else g for n, (y, g) in enumerate(zip(labels, guess, strict=True))]
        base = double_settings(num_classes, margin=8 / 255)
        feedback = Feedback(1, 10, torch.ones(num_classes), robust(labels, predicted, num_classes))
        found, _ = CalibratedMargin(floor).update(base, feedback)
        hits = sum(y == p for y, p in zip(labels, predicted, strict=True))
        for k in range(num_classes):
            mine = [p for y, p in zip(labels, predicted, strict=True) if y == k]
            right = sum(p == k for p in mine)
            t = right / len(mine) if mine else hits / len(labels)
            assert found.margin[k].item() == pytest.approx((floor + t) * 8 / 255, rel=1e-14)

    @pytest.mark.parametrize("num_classes", SIZES)
    @pytest.mark.parametrize("floor", [0.25, 0.5])
    def test_accuracy_of_one_minus_the_floor_leaves_the_base(self, num_classes, floor):
        sizes = 4 * torch.arange(1, num_classes + 1)
        hits = ((1 - floor) * sizes).long()
        confusion = torch.diag(hits)
        confusion[torch.arange(num_classes), (torch.arange(num_classes) + 1) % num_classes] = (
            sizes - hits
        )
        base = double_settings(num_classes)
        feedback = Feedback(3, 10, sizes, {TRAIN_ROBUST: ClassCounts(confusion)})
        found, _ = CalibratedMargin(floor).update(base, feedback)
        torch.testing.assert_close(found.margin, base.margin, rtol=1e-15, atol=0)

    def test_before_the_first_epoch_the_base_stays(self):
        base = double_settings(3)
        policy = CalibratedMargin(0.5)
        assert policy.needs(0) == frozenset()
        assert policy.needs(1) == {TRAIN_ROBUST}
        settings, after = policy.update(base, Feedback(0, 10, torch.ones(3)))
        assert settings is base
        assert after is policy

    @pytest.mark.parametrize(("start", "first"), [(0, 1), (1, 1), (3, 3), (0.5, 5)])
    def test_calibrates_from_its_start_on(self, start, first):
        policy, base = CalibratedMargin(0.5, start), double_settings(2)
        seen = robust([0, 1], [0, 0], 2)
        moved = [
            not torch.equal(policy.update(base, Feedback(e, 10, None, seen))[0].margin, base.margin)
            for e in range(8)
        ]
        assert moved == [e >= first for e in range(8)]

    def test_a_hard_class_gets_the_smaller_margin_and_the_step_stays(self):
        base = double_settings(2)
        seen = robust([0, 0, 1, 1], [0, 0, 0, 0], 2)
        found, _ = CalibratedMargin(0.5).update(base, Feedback(1, 10, None, seen))
        assert found.margin.tolist() == pytest.approx([1.5 * 0.2, 0.5 * 0.2])
        assert torch.equal(found.step, base.step)

    def test_nothing_compounds_over_epochs(self):
        recipe = parse_recipe("at+ccm")
        chain, base = Chain(recipe.slots.policies), double_settings(2)
        seen = robust([0, 1], [0, 0], 2)
        for epoch in (1, 2, 3):
            settings, chain = chain.update(base, Feedback(epoch, 10, None, seen))
        assert settings.margin.tolist() == pytest.approx([1.5 * 0.2, 0.5 * 0.2])


class TestChain:
    def test_two_writers_of_one_setting_are_refused(self):
        with refused("CalibratedMargin", "margin"):
            Chain([CalibratedMargin(0.3), CalibratedMargin(0.5)])

    def test_an_unknown_setting_is_refused(self):
        class Stray(CalibratedMargin):
            writes = frozenset({"margins"})

        with refused("margins", "margin"):
            Chain([Stray(0.3)])

    def test_needs_are_shared(self):
        assert Chain([CalibratedMargin(0.3)]).needs(2) == {TRAIN_ROBUST}
        assert Chain().needs(2) == frozenset()


def test_settings_are_looked_up_by_the_true_label():
    settings = replace(
        double_settings(3),
        margin=torch.tensor([0.1, 0.2, 0.3]),
        target_odds=torch.tensor([[0, 1, 0], [0.5, 0, 0.5], [1, 0, 0]]),
    )
    rows = settings.rows(torch.tensor([2, 2, 0]))
    assert rows.margin.tolist() == pytest.approx([0.3, 0.3, 0.1])
    assert rows.target_odds.tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 0]]
    assert rows.beta.tolist() == [3.0, 3.0, 3.0]
