import math

import pytest
import torch
from refusals import refused
from short_runs import same_weights, short_run

from classwise.classes.settings import ClassSettings
from classwise.methods.benz2021_cosine import CosineApart
from classwise.objective import Outer
from classwise.recipe_text import parse_recipe


def batches(num_classes, count=4, missing=()):
    """A few batches of logits and labels; unbalanced, and no batch has every class."""
    rng = torch.Generator().manual_seed(num_classes)
    for number in range(count):
        labels = torch.randint(num_classes, (9,), generator=rng)
        labels = labels[(labels != number % num_classes)]
        for k in missing:
            labels = labels[labels != k]
        logits = torch.randn(len(labels), num_classes, generator=rng, dtype=torch.float64)
        yield logits, labels


def outer_of(logits, labels, view="robust"):
    settings = ClassSettings.uniform(logits.shape[1], margin=0.1, step=0.1)
    return Outer({view: logits}, labels, settings.rows(labels))


def straight(rho, memory, seen, num_classes):
    """Penalty of the last batch from the definition, with loops."""
    means = {}
    for logits, labels in seen:
        for k in range(num_classes):
            own = [row for row, y in zip(logits.tolist(), labels.tolist(), strict=True) if y == k]
            if not own:
                continue
            fresh = [sum(row[j] for row in own) / len(own) for j in range(num_classes)]
            old = means.get(k)
            means[k] = (
                fresh
                if old is None
                else [memory * a + (1 - memory) * b for a, b in zip(old, fresh, strict=True)]
            )
    cosines = []
    for i in means:
        for j in means:
            if i != j:
                dot = sum(a * b for a, b in zip(means[i], means[j], strict=True))
                length = math.hypot(*means[i]) * math.hypot(*means[j])
                cosines.append(dot / length)
    return rho * sum(cosines) / len(cosines) if cosines else 0.0


@pytest.mark.parametrize("num_classes", [2, 3, 10])
@pytest.mark.parametrize("missing", [(), (1,)])
def test_running_penalty_equals_a_straight_loop(num_classes, missing):
    rule = CosineApart(strength=0.7, memory=0.8)
    state, seen = rule.begin(num_classes), []
    for logits, labels in batches(num_classes, missing=missing):
        seen.append((logits, labels))
        penalty, state = rule.penalty(outer_of(logits, labels), state)
        expected = straight(0.7, 0.8, seen, num_classes)
        # the state is kept in the precision of the logits
        assert penalty.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_gradients_flow_through_this_batch_only():
    rule = CosineApart(strength=1.0, memory=0.9)
    first, second = list(batches(4, count=2))
    past = first[0].clone().requires_grad_()
    _, state = rule.penalty(outer_of(past, first[1]), rule.begin(4))
    assert not any(value.requires_grad for value in state.values())
    now = second[0].clone().requires_grad_()

    def penalty(logits):
        return rule.penalty(outer_of(logits, second[1]), state)[0]

    assert torch.autograd.gradcheck(penalty, (now,))
    penalty(now).backward()
    assert now.grad.abs().max() > 1e-4
    assert past.grad is None


def test_a_step_along_the_gradient_lowers_the_similarity():
    rule = CosineApart(strength=1.0, memory=0.5)
    (logits, labels), *_ = batches(5)
    state = rule.begin(5)
    logits = (logits + 3).requires_grad_()
    before, _ = rule.penalty(outer_of(logits, labels), state)
    (slope,) = torch.autograd.grad(before, logits)
    after, _ = rule.penalty(outer_of(logits - 0.5 * slope, labels), state)
    assert after < before


def test_identical_and_opposite_classes():
    rule, labels = CosineApart(2.0, 0.9), torch.tensor([0, 1])
    same = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    assert rule.penalty(outer_of(same, labels), rule.begin(2))[0].item() == pytest.approx(2)
    apart = torch.tensor([[1.0, -1.0], [-3.0, 3.0]])
    assert rule.penalty(outer_of(apart, labels), rule.begin(2))[0].item() == pytest.approx(-2)


def test_one_class_alone_costs_nothing_and_zero_logits_stay_finite():
    rule = CosineApart(1.0, 0.9)
    for logits, labels in (
        (torch.randn(3, 4), torch.tensor([2, 2, 2])),
        (torch.zeros(3, 4), torch.tensor([0, 1, 2])),
    ):
        logits = logits.requires_grad_()
        penalty, state = rule.penalty(outer_of(logits, labels), rule.begin(4))
        assert penalty.item() == 0
        penalty.backward()
        assert torch.isfinite(logits.grad).all()
        assert state["seen"].tolist() == [k in labels.tolist() for k in range(4)]


def test_renaming_the_classes_leaves_the_penalty():
    rule, names = CosineApart(1.0, 0.6), torch.tensor([3, 0, 4, 1, 2])
    plain, other = rule.begin(5), rule.begin(5)
    for logits, labels in batches(5):
        one, plain = rule.penalty(outer_of(logits, labels), plain)
        two, other = rule.penalty(outer_of(logits[:, names.argsort()], names[labels]), other)
        assert one.item() == pytest.approx(two.item(), rel=1e-12)


def test_attacked_logits_are_taken_where_there_are_some_and_slots_left_out():
    rule = CosineApart(1.0, 0.9)
    (logits, labels), *_ = batches(3)
    expected = rule.penalty(outer_of(logits, labels), rule.begin(3))[0]
    wide = torch.cat([logits, 9 * torch.ones(len(logits), 2)], dim=1)
    both = Outer({"clean": -wide.flip(0), "robust": wide}, labels, None)
    assert rule.penalty(both, rule.begin(3))[0].item() == pytest.approx(expected.item())
    clean = Outer({"clean": logits}, labels, None)
    assert rule.penalty(clean, rule.begin(3))[0].item() == pytest.approx(expected.item())


@pytest.mark.parametrize("base", ["clean", "at(steps=2)", "trades(steps=2)"])
def test_without_strength_it_is_the_base_bit_for_bit(base, tiny, tmp_path):
    plain = short_run(tmp_path / "plain", base, tiny())
    none = short_run(tmp_path / "none", f"{base}+cosine(strength=0)", tiny())
    some = short_run(tmp_path / "some", f"{base}+cosine(strength=0.5)", tiny())
    assert same_weights(plain, none)
    assert not same_weights(plain, some)
    assert "cosine" in some.history[0]["loss"]


@pytest.mark.parametrize("option", ["strength=-1", "memory=1", "memory=-0.1"])
def test_values_out_of_range_are_refused(option):
    with refused(f"cosine({option.split('=')[0]}="):
        parse_recipe(f"at+cosine({option})")
