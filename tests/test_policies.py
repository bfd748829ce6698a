from dataclasses import fields, replace

import pytest
import torch
from cases import CASES
from refusals import refused

from classwise.classes.counts import ClassCounts
from classwise.classes.settings import (
    TRAIN_ROBUST,
    Chain,
    ClassSettings,
    Feedback,
    policy_state,
    restore_policy,
)
from classwise.methods.wei2023_cfa import CalibratedMargin
from classwise.objective import Outer
from classwise.recipe_text import parse_recipe
from classwise.training.checkpoint import pack, read_tensors, under_prefix, write_tensors

STEERING = [case for case in CASES if case.recipe.slots.policies]
SIZES = [2, 3, 10, 100]
EPOCHS = 4
TABLES = [field.name for field in fields(ClassSettings)]


def double_settings(num_classes, margin=0.2, step=0.05, beta=3.0):
    one = torch.ones(num_classes, dtype=torch.float64)
    base = ClassSettings.uniform(num_classes, margin=0, step=0)._each(torch.Tensor.double)
    return replace(base, margin=margin * one, step=step * one, beta=beta * one)


def draw_counts(recipe, num_classes, seed, *, missing=(), perfect=False):
    """Unbalanced class statistics with every part that a policy might ask for."""
    rng = torch.Generator().manual_seed(seed)
    sizes = torch.randint(3, 40, (num_classes,), generator=rng)
    sizes[list(missing)] = 0
    labels = torch.repeat_interleave(torch.arange(num_classes), sizes)
    guess = torch.randint(num_classes, labels.shape, generator=rng)
    skill = torch.rand(num_classes, generator=rng)[labels]
    right = torch.rand(labels.shape, generator=rng) < skill
    predicted = labels if perfect else torch.where(right, labels, guess)
    logits = torch.randn(len(labels), num_classes, generator=rng, dtype=torch.float64)
    rows = double_settings(num_classes).rows(labels)
    views = dict.fromkeys(recipe.slots.objective.views, logits)
    outer = Outer(views, labels, rows, teacher=logits.flip(1))
    terms = recipe.slots.objective.terms(outer)
    losses = {term.name: term.values for term in terms}
    losses["total"] = sum(term.scale * term.values for term in terms)
    losses["label_ce"] = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    return ClassCounts.of(labels, predicted, num_classes=num_classes, logits=logits, losses=losses)


def renamed(counts, names):
    """The same statistics when class k is called names[k]; exact, as it only moves numbers."""
    back = names.argsort()
    return ClassCounts(
        counts.confusion[back][:, back],
        counts.probability[back][:, back],
        {term: sums[back] for term, sums in counts.losses.items()},
    )


def play(recipe, num_classes, change=lambda counts: counts, called=None, **world):
    """Settings of every epoch boundary, 0 included, and the chain at the end."""
    called = range(num_classes) if called is None else called.tolist()
    base = double_settings(num_classes)
    chain = Chain(recipe.slots.policies).bind([str(k) for k in called])
    found = []
    for epoch in range(EPOCHS + 1):
        counts = {
            seen: change(draw_counts(recipe, num_classes, 10 * epoch + n, **world))
            for n, seen in enumerate(sorted(chain.needs(epoch)))
        }
        whole = change(draw_counts(recipe, num_classes, 999, **world))
        settings, chain = chain.update(base, Feedback(epoch, EPOCHS, whole.sizes, counts))
        found.append(settings)
    return found, chain


WORLDS = [{}, {"missing": (1,)}, {"perfect": True}]


@pytest.mark.parametrize("case", STEERING, ids=str)
@pytest.mark.parametrize("num_classes", SIZES)
@pytest.mark.parametrize("world", WORLDS, ids=["unbalanced", "one class empty", "no mistake"])
class TestEveryPolicy:
    def test_renaming_the_classes_renames_the_settings(self, case, num_classes, world):
        names = torch.randperm(num_classes, generator=torch.Generator().manual_seed(5))
        back = names.argsort()
        plain, _ = play(case.recipe, num_classes, **world)
        other, _ = play(case.recipe, num_classes, lambda c: renamed(c, names), back, **world)
        for one, two in zip(plain, other, strict=True):
            for table in TABLES:
                expected, found = getattr(one, table), getattr(two, table)
                if expected is None:
                    assert found is None
                    continue
                expected = expected[back][:, back] if expected.ndim == 2 else expected[back]
                torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)

    def test_settings_are_sound(self, case, num_classes, world):
        for settings in play(case.recipe, num_classes, **world)[0]:
            for table in TABLES:
                values = getattr(settings, table)
                if values is None:
                    continue
                assert values.shape[0] == num_classes
                assert torch.isfinite(values).all(), table
                assert (values >= 0).all(), table
            odds = settings.target_odds
            if odds is not None:
                assert odds.shape == (num_classes, num_classes)
                assert (odds.diagonal() == 0).all()
                torch.testing.assert_close(odds.sum(1), torch.ones(num_classes).double())

    def test_only_declared_settings_change(self, case, num_classes, world):
        policies = case.recipe.slots.policies
        written = frozenset().union(*(policy.writes for policy in policies))
        base = double_settings(num_classes)
        found = play(case.recipe, num_classes, **world)[0]
        for settings in found:
            for table in set(TABLES) - written:
                expected, got = getattr(base, table), getattr(settings, table)
                assert (expected is None and got is None) or torch.equal(expected, got), table
        # With no mistake, or one class alone, there may be nothing to tell the classes apart by.
        for table in written if not world else ():
            assert any(not same(getattr(s, table), getattr(base, table)) for s in found), table

    def test_a_policy_is_its_own_state(self, case, num_classes, world, tmp_path):
        _, chain = play(case.recipe, num_classes, **world)
        for number, policy in enumerate(chain.policies):
            tensors, plain = pack(f"policy.{number}", policy_state(policy))
            tensors["never"] = torch.zeros(1)
            write_tensors(tmp_path / "state", tensors, {"plain": plain})
            tensors, about = read_tensors(tmp_path / "state")
            state = {**about["plain"], **under_prefix(f"policy.{number}", tensors)}
            first = case.recipe.slots.policies[number]
            restored = restore_policy(first, state)
            assert type(restored) is type(policy)
            for name, value in policy_state(policy).items():
                assert same(policy_state(restored)[name], value)


def same(one, other):
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return one == other


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
