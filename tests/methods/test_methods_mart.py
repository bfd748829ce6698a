import math

import pytest
import torch
from refusals import refused
from test_objective import N, kl, loss_of, softmax, world

from classwise.recipe_text import parse_recipe


def straight(outputs, labels, settings):
    """The loss from its equation, one sample at a time."""
    clean, robust = outputs["clean"].tolist(), outputs["robust"].tolist()
    whole = 0.0
    for b, y in enumerate(labels.tolist()):
        p, p_robust = softmax(clean[b]), softmax(robust[b])
        rival = max(share for j, share in enumerate(p_robust) if j != y)
        bce = -math.log(p_robust[y]) - math.log(1.0001 - rival)
        doubt = (1.0000001 - p[y]) * kl(clean[b], robust[b])
        whole += settings.label_weight[y].item() * bce
        whole += settings.robust_weight[y].item() * settings.beta[y].item() * doubt
    return whole / N


@pytest.mark.parametrize("num_classes", [2, 3, 10])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_loss_equals_a_straight_loop(num_classes, seed):
    outputs, labels, settings = world(num_classes, seed)
    expected = straight(outputs, labels, settings)
    found = loss_of("mart", outputs, labels, settings)
    assert found.item() == pytest.approx(expected, rel=1e-12)


def test_gradients_agree_with_finite_differences_and_reach_both_predictions():
    outputs, labels, settings = world()

    def loss(clean, robust):
        return loss_of("mart", {"clean": clean, "robust": robust}, labels, settings)

    both = outputs["clean"], outputs["robust"]
    assert torch.autograd.gradcheck(loss, both)
    for slope in torch.autograd.grad(loss(*both), both):
        assert slope.abs().max() > 1e-3


def test_it_attacks_the_cross_entropy_from_a_gaussian_start_in_eval_mode():
    slots = parse_recipe("mart").slots
    inner = slots.inner
    assert (inner.reference, inner.start, inner.steps) == ("label", "gaussian", 10)
    assert inner.batchnorm == "eval"
    assert slots.beta == 5


def test_a_beta_per_class_finds_a_beta():
    recipe = parse_recipe("mart+frl(start=1, warmup_beta=2)")
    assert recipe.owners["class beta"] == "frl"


def test_cfas_parts_that_need_no_normalised_loss_are_welcome():
    recipe = parse_recipe("mart+ccm+fawa")
    assert recipe.owners["class margin"] == "ccm"
    assert "class beta" not in recipe.owners


@pytest.mark.parametrize("call", ["mart(beta=-1)", "mart(steps=-1)", "mart(step=1)"])
def test_values_out_of_range_are_refused(call):
    with refused(call.split("=")[0] + "="):
        parse_recipe(call)
