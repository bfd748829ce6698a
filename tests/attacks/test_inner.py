"""The attack inside training: what it draws, where it starts, and what it keeps in memory."""

import pytest
import torch
import torch.nn.functional as F
from inner_attacks import batch_of

from classwise.attacks.ball import LINF
from classwise.attacks.inner import InnerAttack, Moment, View, starting_images
from classwise.draws import Draws
from classwise.recipe_text import parse_recipe

MOMENT = Moment(seed=2, epoch=3, epochs=10)
RADIUS = torch.linspace(0.02, 0.2, 6, dtype=torch.float64)


def perturbed(attack, model, batch, moment=MOMENT):
    facts = {"radius": RADIUS, "step": RADIUS / 4, "ball": LINF}
    return attack.perturb(model, batch, moment, **facts)


def test_the_clean_prediction_is_asked_without_gradients(net):
    model, batch = net().eval(), batch_of()
    graphs = []
    model.register_forward_hook(lambda *found: graphs.append(found[2].requires_grad))
    perturbed(InnerAttack("clean", "gaussian", 3, "eval"), model, batch)
    assert graphs == [False, True, True, True]


def test_a_clipped_start_is_clipped_and_a_plain_one_is_not():
    batch = batch_of()  # with pixels at both ends
    draws = Draws(2, "start", 3)
    noise = 0.001 * draws.normal(batch.index, (1, 8, 8), torch.float64)
    plain = starting_images("gaussian", batch, RADIUS, LINF, draws)
    clipped = starting_images("clipped gaussian", batch, RADIUS, LINF, draws)
    assert torch.equal(plain, batch.images + noise)
    assert torch.equal(clipped, plain.clamp(0, 1))
    assert plain.min() < 0
    assert plain.max() > 1


@pytest.mark.parametrize(("recipe", "clips"), [("trades", False), ("bat", True)])
def test_the_first_forward_sees_the_start_as_the_recipe_wants_it(net, recipe, clips):
    model, batch = net().eval(), batch_of()
    seen = []
    model.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    perturbed(parse_recipe(recipe).slots.inner, model, batch)
    begin = next(x for x in seen if not torch.equal(x, batch.images))
    assert bool((begin < 0).any() or (begin > 1).any()) != clips


@pytest.mark.parametrize("view", ["robust", "lastclean"])
def test_every_update_has_noise_of_its_own(net, view):
    model, batch = net().eval(), batch_of()
    attack = InnerAttack("label", "none", 3, "eval", (View(view),), jitter=0.01)
    purpose = "jitter" if view == "robust" else f"jitter {view}"
    current = batch.images
    reach = RADIUS.view(-1, 1, 1, 1)
    for number in range(3):
        x = current.clone().requires_grad_()
        loss = F.cross_entropy(model(x), batch.labels, reduction="sum")
        (slope,) = torch.autograd.grad(loss, x)
        noise = Draws(2, f"{purpose} {number}", 3).normal(batch.index, (1, 8, 8), torch.float64)
        moved = current + reach / 4 * slope.sign() + 0.01 * noise
        offset = (moved - batch.images).clamp(-reach, reach)
        current = (batch.images + offset).clamp(0, 1)
    found = perturbed(attack, model, batch)[view]
    torch.testing.assert_close(found, current, rtol=0, atol=1e-12)


@pytest.mark.parametrize("other", [Moment(3, 3, 10), Moment(2, 4, 10)], ids=["seed", "epoch"])
def test_another_seed_or_epoch_starts_elsewhere(net, other):
    model, batch = net().eval(), batch_of()
    attack = InnerAttack("label", "uniform", 0, "eval")
    one, again, else_where = (
        perturbed(attack, model, batch, moment)["robust"] for moment in (MOMENT, MOMENT, other)
    )
    assert torch.equal(one, again)
    assert ((one != else_where).flatten(1).float().mean(1) > 0.7).all()
