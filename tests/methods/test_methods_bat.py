import math

import pytest
import torch
from refusals import refused
from stop_rules import EVERY, PATTERNS, STEPS, original_rule, updates_made
from test_objective import N, cross_entropy, kl, loss_of, softmax, world

from classwise.attacks.ball import LINF
from classwise.attacks.inner import Moment
from classwise.methods.sun2023_bat import LastCorrectStop, from_uniform
from classwise.recipe_text import parse_recipe
from classwise.types import Batch


def last_correct_rule(pattern):
    """Which iterate one sample emits, counted in updates from the start."""
    for place, right in enumerate(pattern):
        if not right:
            return max(0, place - 1)
    return len(pattern)


def test_the_last_correct_iterate_over_all_patterns_of_ten_inspections():
    expected = [last_correct_rule(pattern) for pattern in PATTERNS]
    assert updates_made(LastCorrectStop(), EVERY) == expected
    assert set(expected) == {*range(STEPS - 1), STEPS}  # the last but one is never emitted


def test_the_first_adversarial_view_has_patience_one_by_the_original_rule():
    stop = parse_recipe("bat").slots.stop
    expected = [original_rule(pattern, 1) for pattern in PATTERNS]
    assert updates_made(stop, EVERY) == expected


def straight(outputs, labels, settings, uniformity):
    clean, first, last = (outputs[v].tolist() for v in ("clean", "robust", "lastclean"))
    whole = 0.0
    for b, y in enumerate(labels.tolist()):
        weight = settings.robust_weight[y].item()
        whole += settings.label_weight[y].item() * cross_entropy(last[b], y)
        whole += weight * settings.beta[y].item() * kl(clean[b], first[b])
        for row in (last[b], first[b]):
            p = softmax(row)
            whole += weight * uniformity * sum(q * math.log(q * len(p)) for q in p)
    return whole / N


@pytest.mark.parametrize("num_classes", [2, 3, 10])
@pytest.mark.parametrize("uniformity", [0, 1, 2.5])
def test_the_loss_equals_a_straight_loop(num_classes, uniformity):
    outputs, labels, settings = world(num_classes)
    found = loss_of(f"bat(uniformity={uniformity})", outputs, labels, settings)
    expected = straight(outputs, labels, settings, uniformity)
    assert found.item() == pytest.approx(expected, rel=1e-12)


def test_gradients_agree_with_finite_differences_and_reach_all_three_views():
    outputs, labels, settings = world()
    views = parse_recipe("bat").slots.objective.views
    assert set(views) == set(outputs)

    def loss(*logits):
        return loss_of("bat", dict(zip(views, logits, strict=True)), labels, settings)

    logits = [outputs[view] for view in views]
    assert torch.autograd.gradcheck(loss, logits)
    for slope in torch.autograd.grad(loss(*logits), logits):
        assert slope.abs().max() > 1e-3


def test_a_uniform_prediction_costs_nothing():
    logits = torch.full((3, 7), 2.5, dtype=torch.float64)
    torch.testing.assert_close(from_uniform(logits), torch.zeros(3).double(), rtol=0, atol=1e-15)


def perturbed(net, text="bat", steps=6):
    rng = torch.Generator().manual_seed(4)
    images = torch.rand(60, 1, 8, 8, generator=rng, dtype=torch.float64).round(decimals=1)
    model = net().eval()
    labels = model(images).argmax(1)
    labels[::5] = (labels[::5] + 1) % 4  # some are wrong from the start
    batch = Batch(images, labels, torch.arange(60) + 7)
    radius = torch.full((60,), 0.2, dtype=torch.float64)
    inner = parse_recipe(f"trades(steps={steps})+{text}").slots.inner
    views = inner.perturb(model, batch, Moment(0, 1, 10), radius=radius, step=radius / 4, ball=LINF)
    return model, batch, views


def test_the_two_views_lie_on_the_two_sides_of_the_boundary(net):
    model, batch, views = perturbed(net)
    assert set(views) == {"robust", "lastclean"}
    clean, last, first = (
        model(images).argmax(1) == batch.labels
        for images in (batch.images, views["lastclean"], views["robust"])
    )
    fooled = clean & ~first
    assert fooled.sum() > 5
    assert last[fooled].float().mean() > 0.9  # its own noise, so a few may differ
    near = (views["lastclean"] - batch.images).abs().flatten(1).amax(1)
    far = (views["robust"] - batch.images).abs().flatten(1).amax(1)
    caught = fooled & (near < 0.19)  # with its own noise an attack may fail where the other did not
    assert caught.sum() > 5
    assert (near[caught] < far[caught]).all()
    begun_wrong = torch.arange(60) % 5 == 0
    assert near[begun_wrong].max() < 0.01  # only the start's noise


def test_each_view_has_its_own_noise_clipped_to_the_image_range(net):
    _, batch, views = perturbed(net, steps=0)
    assert parse_recipe("bat").slots.inner.start == "clipped gaussian"
    offsets = [views[view] - batch.images for view in ("robust", "lastclean")]
    assert not torch.equal(*offsets)
    for view, offset in zip(("robust", "lastclean"), offsets, strict=True):
        assert 0 < offset.abs().max() < 0.01
        assert views[view].min() >= 0
        assert views[view].max() <= 1


def test_it_extends_trades_and_brings_it_where_missing():
    alone = parse_recipe("bat")
    assert alone == parse_recipe("trades+bat")
    owners = alone.owners
    assert (owners["objective"], owners["stop"], owners["start"]) == ("bat", "bat", "bat")
    assert (owners["reference"], owners["beta"], owners["batchnorm"]) == ("trades",) * 3
    with refused("bat", "fat", "stop"):
        parse_recipe("trades+bat+fat")
    with refused("at", "bat"):
        parse_recipe("at+bat")


@pytest.mark.parametrize("call", ["bat(uniformity=-1)", "bat(patience=-1)"])
def test_values_out_of_range_are_refused(call):
    with refused(call.split("=")[0] + "="):
        parse_recipe(call)
