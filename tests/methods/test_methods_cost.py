"""Cost, protect, target, balanced and resample: the tools of the study plan."""

import math

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

from classwise.classes.counts import ClassCounts
from classwise.classes.settings import TRAIN_ROBUST, Chain, Feedback, Seen
from classwise.draws import Draws
from classwise.methods.benz2021_plan import BalancedSampler, class_number
from classwise.methods.cui2019_balanced import balanced_weights
from classwise.recipe_text import parse_recipe

SIZES = [2, 3, 10]
NAMES = ("cat", "dog", "7", "0")


def settings_of(text, table, names=NAMES, epoch=1, sizes=None):
    """Settings after an epoch in which every statistic asked for was this table."""
    chain = Chain(parse_recipe(text).slots.policies).bind(names)
    counts = {seen: ClassCounts(table) for seen in chain.needs(epoch)}
    base = plain_settings(len(table))
    sizes = table.sum(1) if sizes is None else torch.tensor(sizes)
    return chain.update(base, Feedback(epoch, 10, sizes, counts))[0]


def names_of(size):
    return [f"class {k}" for k in range(size)]


class TestEqualise:
    @pytest.mark.parametrize("num_classes", SIZES)
    @pytest.mark.parametrize("rate", [0.0, 1.0, 5.0])
    def test_equals_a_straight_loop(self, num_classes, rate):
        table = draw_confusion(num_classes, 2)
        found = settings_of(f"at+cost(equalise={rate})", table, names_of(num_classes))
        accuracy, _ = rates(table)
        mean = sum(accuracy) / num_classes
        raw = [math.exp(rate * (mean - a)) for a in accuracy]
        expected = [num_classes * r / sum(raw) for r in raw]
        assert found.label_weight.tolist() == pytest.approx(expected, rel=1e-12)
        assert found.robust_weight.tolist() == pytest.approx(expected, rel=1e-12)
        assert found.label_weight.mean().item() == pytest.approx(1)

    def test_a_class_without_validation_samples_weighs_as_the_mean_class(self):
        table = torch.tensor([[8, 2, 0], [0, 0, 0], [6, 0, 4]])
        found = settings_of("at+cost(equalise=2)", table, names_of(3)).label_weight
        raw = [math.exp(2 * (0.6 - a)) for a in (0.8, 0.6, 0.4)]
        assert found.tolist() == pytest.approx([3 * r / sum(raw) for r in raw], rel=1e-12)

    def test_it_looks_at_robust_validation_accuracy_from_the_first_boundary_on(self):
        (policy,) = parse_recipe("at+cost").slots.policies
        assert policy.needs(0) == frozenset()
        assert policy.needs(1) == {Seen("valid", "pgd-10")}
        assert parse_recipe("at+cost").canonical["cost"]["equalise"] == 1
        (policy,) = parse_recipe("clean+cost").slots.policies
        assert policy.needs(1) == {Seen("valid", "clean")}
        base = plain_settings(3)
        assert policy.update(base, Feedback(0, 10, None))[0] is base

    def test_a_huge_rate_stays_finite(self):
        found = settings_of("at+cost(equalise=1e6)", draw_confusion(4, 1)).label_weight
        assert torch.isfinite(found).all()
        assert found.max() == pytest.approx(4)

    def test_without_validation_data_it_says_what_to_do(self, tmp_path, tiny):
        with refused("cost", "validation", "valid="):
            quick_train("at(steps=2)+cost", tmp_path / "run", tiny(), valid="0")


class TestGivenWeights:
    @pytest.mark.parametrize(
        "spelled", ["{'dog': 3, 7: 0.5}", "{dog: 3.0, '7': 0.5}", "[1, 3, 0.5, 1]"]
    )
    def test_by_name_or_in_order(self, spelled):
        found = settings_of(f"trades+cost(weights={spelled})", draw_confusion(4, 1), epoch=0)
        assert found.label_weight.tolist() == [1, 3, 0.5, 1]
        assert found.robust_weight.tolist() == [1, 3, 0.5, 1]

    def test_names_come_before_numbers(self):
        assert [class_number(name, NAMES) for name in ("cat", "0", "7", "1")] == [0, 3, 2, 1]

    @pytest.mark.parametrize("scale", [1, 4])
    def test_equal_weights_leave_the_base_whatever_their_size(self, scale, tmp_path, tiny):
        given = [scale] * 3
        one = quick_train(f"at(steps=2)+cost(weights={given})", tmp_path / "a", tiny(classes=3))
        other = quick_train("at(steps=2)", tmp_path / "b", tiny(classes=3))
        assert same_weights(weights(one), weights(other))  # powers of two round nothing

    def test_a_run_folder_remembers_them(self, tmp_path, tiny):
        run = quick_train("at(steps=2)+cost(weights={2: 3.0})", tmp_path / "a", tiny(), epochs=1)
        assert run.recipe.canonical["cost"]["weights"] == {"2": 3.0}
        assert run.history[0]["settings"]["label_weight"] == [1, 1, 3, *[1] * 7]

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ("weights=[1, 2]", ("2 weights for 4 classes",)),
            ("weights={'bird': 2}", ("unknown class 'bird'", "cat")),
            ("weights={'4': 2}", ("unknown class '4'",)),
            ("weights={'cat': 0, 'dog': 0, '7': 0, '0': 0}", ("above 0",)),
        ],
    )
    def test_what_does_not_fit_the_classes_is_refused(self, options, words):
        with refused(*words):
            settings_of(f"at+cost({options})", draw_confusion(4, 1))

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ("weights=[1, -1]", ("cost(weights=", "0 or more")),
            ("weights={'cat': nan}", ("cost(weights=", "0 or more")),
            ("weights={'cat': true}", ("cost(weights=", "0 or more")),
            ("weights=3", ("cost(weights=", "one weight per class")),
            ("weights=[]", ("above 0",)),
            ("weights=[0, 0]", ("above 0",)),
            ("weights=[1], equalise=1", ("either weights or equalise",)),
            ("equalise=-1", ("cost(equalise=-1)", "greater than or equal to 0")),
            ("attack='pdg-10'", ("unknown attack",)),
        ],
    )
    def test_values_out_of_range_are_refused(self, options, words):
        with refused(*words):
            parse_recipe(f"at+cost({options})")


WEAK_DOG = torch.tensor([[8, 2, 0, 0], [5, 1, 0, 0], [0, 0, 9, 3], [0, 0, 0, 4]])


class TestOneClass:
    @pytest.mark.parametrize(("to", "number"), [("cat", 0), ("0", 3), ("1", 1), (7, 2)])
    def test_a_named_class_is_the_target_of_all_others(self, to, number):
        for epoch in (0, 5):
            odds = settings_of(f"at+target(to={to!r})", WEAK_DOG, epoch=epoch).target_odds
            for y in range(4):
                others = [float(j != y) / 3 for j in range(4)]
                expected = [float(j == number) for j in range(4)] if y != number else others
                assert odds[y].tolist() == pytest.approx(expected)

    def test_the_weakest_class_is_known_after_the_first_epoch(self):
        uniform = (1 - torch.eye(4).double()) / 3
        torch.testing.assert_close(settings_of("at+target", WEAK_DOG, epoch=0).target_odds, uniform)
        odds = settings_of("at+target", WEAK_DOG).target_odds
        assert odds[0].tolist() == [0, 1, 0, 0]
        torch.testing.assert_close(odds[1], uniform[1])

    def test_a_class_without_samples_is_not_the_weakest(self):
        table = WEAK_DOG.clone()
        table[1] = 0
        assert settings_of("at+target", table).target_odds[1].tolist() == [0, 0, 1, 0]

    def test_classes_that_tie_share_the_odds(self):
        table = torch.diag(torch.tensor([5, 5, 5, 5]))
        odds = settings_of("at+target", table).target_odds
        torch.testing.assert_close(odds, (1 - torch.eye(4).double()) / 3)

    def test_protect_weighs_one_class(self):
        found = settings_of("trades+protect(to=dog, weight=5)", WEAK_DOG, epoch=0)
        assert found.label_weight.tolist() == [1, 5, 1, 1]
        assert found.robust_weight.tolist() == [1, 5, 1, 1]
        assert settings_of("at+protect", WEAK_DOG).label_weight.tolist() == [1, 2, 1, 1]
        assert settings_of("at+protect", WEAK_DOG, epoch=0).label_weight.tolist() == [1] * 4

    def test_protect_works_without_an_attack(self, tmp_path, tiny):
        run = quick_train("clean+protect(weight=3)", tmp_path / "run", tiny(classes=3))
        before, after = run.history[0], run.history[1]
        rate = before["train"]["clean"]["by_class"]
        expected = [3.0 if r == min(rate) else 1.0 for r in rate]
        assert after["settings"]["label_weight"] == expected

    def test_neutral_weight_is_the_base(self, tmp_path, tiny):
        one = quick_train("at(steps=2)+protect(to='1', weight=1)", tmp_path / "a", tiny())
        other = quick_train("at(steps=2)", tmp_path / "b", tiny())
        assert same_weights(weights(one), weights(other))

    @pytest.mark.parametrize("name", ["target", "protect"])
    def test_an_unknown_class_is_refused_by_name(self, name, tmp_path, tiny):
        with refused("unknown class 'dgo'", "did you mean 'dog'"):
            settings_of(f"at+{name}(to=dgo)", WEAK_DOG)
        with refused("unknown class"):
            quick_train(f"at(steps=2)+{name}(to='human')", tmp_path / "run", tiny())

    def test_bad_company_and_values_are_refused(self):
        with refused("target", "clean"):
            parse_recipe("clean+target")
        with refused("cost", "protect", "both set"):
            parse_recipe("at+cost+protect")
        with refused("protect(weight=-1)", "greater than or equal to 0"):
            parse_recipe("at+protect(weight=-1)")

    @pytest.mark.parametrize("text", ["at(steps=2)+target+cost", "at(steps=2)+protect(to=1)"])
    def test_a_resumed_run_is_the_straight_one(self, text, tmp_path, tiny, monkeypatch):
        straight = quick_train(text, tmp_path / "straight", tiny())
        resumed = interrupted_train(text, tmp_path / "resumed", tiny(), monkeypatch, epoch=2)
        assert files(straight) == files(resumed)


class TestBalanced:
    @pytest.mark.parametrize("sizes", [[1, 500], [3, 40, 7], [5000, 4000, 2, 1, 77]])
    @pytest.mark.parametrize("b", [0.5, 0.99, 0.9999])
    def test_equals_a_straight_loop(self, sizes, b):
        effective = [(1 - b**n) / (1 - b) for n in sizes]
        mass = sum(1 / e for e in effective)
        expected = [len(sizes) / e / mass for e in effective]
        table = torch.eye(len(sizes), dtype=torch.int64)
        found = settings_of(
            f"trades+balanced(smoothing={b})", table, names_of(len(sizes)), 0, sizes
        )
        assert found.label_weight.tolist() == pytest.approx(expected, rel=1e-9)
        assert found.robust_weight.tolist() == pytest.approx(expected, rel=1e-9)

    def test_equal_sizes_and_no_smoothing_change_nothing(self):
        for sizes, b in (([9, 9, 9], 0.9999), ([1, 5, 100], 0.0)):
            found = balanced_weights(torch.tensor(sizes), b)
            assert found.tolist() == pytest.approx([1, 1, 1], rel=1e-12)

    def test_an_empty_class_stays_finite(self):
        found = balanced_weights(torch.tensor([0, 1, 10]), 0.9999)
        assert found[0] == found[1] > found[2] > 0

    @pytest.mark.parametrize(("start", "first"), [(0, 0), (3, 3), (0.8, 8)])
    def test_a_late_start_defers_the_weights(self, start, first):
        table = torch.eye(2, dtype=torch.int64)
        text = f"at+balanced(start={start})"
        for epoch in range(10):
            found = settings_of(text, table, names_of(2), epoch, [1, 9]).label_weight
            assert bool(found[0] > 1) == (epoch >= first)

    def test_values_out_of_range_name_the_range(self):
        with refused("balanced(smoothing=1)", "less than 1"):
            parse_recipe("at+balanced(smoothing=1)")


class TestResample:
    @pytest.mark.parametrize("sizes", [[50, 3], [7, 0, 30, 12], [10, 10, 10], [1, 1, 98]])
    def test_every_class_is_visited_equally_often(self, sizes):
        labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        labels = labels[Draws(1, "mix").order(len(labels))]
        order = BalancedSampler().order(labels, Draws(0, "order", 4))
        assert len(order) == len(labels)
        there = [k for k, n in enumerate(sizes) if n]
        visits = torch.bincount(labels[order], minlength=len(sizes))[there]
        assert visits.max() - visits.min() <= 1
        for k in there:
            mine = torch.bincount(order, minlength=len(labels))[labels == k]
            assert mine.max() - mine.min() <= 1

    def test_balanced_data_are_visited_once_each(self):
        labels = torch.arange(30) % 3
        order = BalancedSampler().order(labels, Draws(0, "order", 1))
        assert order.sort().values.tolist() == list(range(30))
        assert order.tolist() != list(range(30))

    def test_epochs_and_seeds_differ_and_repeat(self):
        labels = torch.tensor([0] * 30 + [1] * 5)
        orders = [
            BalancedSampler().order(labels, Draws(seed, "order", epoch)).tolist()
            for seed, epoch in ((0, 0), (0, 1), (1, 0), (0, 0))
        ]
        assert orders[0] == orders[3]
        assert orders[0] != orders[1]
        assert orders[0] != orders[2]

    def test_classes_come_mixed(self):
        labels = torch.tensor([0] * 100 + [1] * 100)
        order = BalancedSampler().order(labels, Draws(0, "order", 0))
        first = labels[order][:100].float().mean().item()
        assert 0.3 < first < 0.7

    def test_it_trains_and_resumes(self, tmp_path, tiny, monkeypatch):
        text = "at(steps=2)+resample"
        straight = quick_train(text, tmp_path / "straight", tiny())
        resumed = interrupted_train(text, tmp_path / "resumed", tiny(), monkeypatch, epoch=2)
        assert files(straight) == files(resumed)

    def test_two_samplers_or_options_are_refused(self):
        with refused("option of resample", "'power'"):
            parse_recipe("at+resample(power=2)")


def test_protect_needs_only_what_it_uses():
    (named,) = parse_recipe("at+protect(to=cat)").slots.policies
    (weakest,) = parse_recipe("at+protect").slots.policies
    assert named.needs(1) == frozenset()
    assert weakest.needs(1) == {TRAIN_ROBUST}
