"""FRL's multipliers and losses against straight loops and its script."""

import math
from dataclasses import replace

import pytest
import torch
from boundaries import (
    plain_settings,
    quick_train,
    same_weights,
    weights,
)
from equality.frl import SCRIPTS, multipliers
from frl_worlds import SIZES, play, world

from classwise.attacks.ball import LINF
from classwise.attacks.inner import Moment
from classwise.classes.counts import ClassCounts
from classwise.classes.settings import Feedback
from classwise.methods.xu2021_frl import ATTACKED, CLEAN
from classwise.objective import Outer, total
from classwise.recipe_text import parse_recipe
from classwise.types import Batch


class TestMultipliers:
    @pytest.mark.parametrize("variant", SCRIPTS)
    @pytest.mark.parametrize("num_classes", SIZES)
    @pytest.mark.parametrize("missing", [(), (1,)])
    @pytest.mark.parametrize("rate", [0.05, 2.0])  # the second runs into the bound
    def test_equal_a_straight_loop_over_three_epochs_from_zero(
        self, variant, num_classes, missing, rate
    ):
        options = f"variant={variant}, start=0, rate={rate}, halve_every=2"
        found, _ = play(f"trades+frl({options})", num_classes, missing=missing)
        seen = [world(num_classes, epoch, missing) for epoch in range(len(found))]
        expected = multipliers(SCRIPTS[variant], seen, rate, halve_every=2)
        close = pytest.approx
        for settings, (nat, bnd, factors) in zip(found, expected, strict=True):
            for k in range(num_classes):
                assert settings.label_weight[k].item() == close(num_classes * nat[k], abs=1e-12)
                assert settings.robust_weight[k].item() == close(num_classes * bnd[k], abs=1e-12)
                assert settings.margin[k].item() == close(factors[k] * 8 / 255, rel=1e-12)
                widened = 1.0 if variant == "remargin" else max(factors)  # its script's step stays
                assert settings.step[k].item() == close(widened * 2 / 255, rel=1e-12)

    def test_the_example_moves_every_kind_of_multiplier(self):
        last = play("trades+frl(start=0)", 10)[0][-1]
        for table in ("label_weight", "robust_weight", "margin"):
            assert getattr(last, table).std() > 1e-4

    def test_the_rate_is_halved_at_its_fortieth_epoch(self):
        text = "trades+frl(variant=reweight, start=3, bound=0.99)"
        policy = next(p for p in parse_recipe(text).slots.policies if "label_weight" in p.writes)
        clean, attacked = world(3, 0)
        counts = {CLEAN: ClassCounts(clean), ATTACKED: ClassCounts(attacked)}
        moved, before = [], torch.zeros(3)
        for epoch in range(50):
            _, policy = policy.update(plain_settings(3), Feedback(epoch, 100, None, counts))
            if policy.boundary is not None:
                moved.append(float((policy.boundary - before).max()))
                before = policy.boundary
        assert moved[39] == pytest.approx(moved[38] / 2, rel=1e-6)
        assert moved[1] == pytest.approx(moved[38], rel=1e-6)

    @pytest.mark.parametrize("bound", [0.0, 0.5, 0.99])
    def test_weights_stay_positive_however_fast_the_multipliers_move(self, bound):
        for settings in play(f"trades+frl(start=0, rate=50, bound={bound})", 10)[0]:
            assert settings.label_weight.min() >= 1 - bound - 1e-9
            assert settings.robust_weight.min() > 0


class TestLoss:
    @pytest.mark.parametrize("num_classes", SIZES)
    def test_is_a_weighted_mean_of_each_term(self, num_classes):
        recipe = parse_recipe("trades+frl(start=0, rate=2)")
        settings = play("trades+frl(start=0, rate=2)", num_classes)[0][-1]
        rng = torch.Generator().manual_seed(4)
        labels = torch.randint(num_classes, (9,), generator=rng)
        clean, robust = torch.randn(2, 9, num_classes, generator=rng, dtype=torch.float64)
        rows = settings.rows(labels)
        found = total(
            recipe.slots.objective.terms(Outer({"clean": clean, "robust": robust}, labels, rows)),
            recipe.slots.reduction,
        )
        top = bottom = top_kl = bottom_kl = 0.0
        for z, z_adv, y in zip(clean, robust, labels.tolist(), strict=True):
            p, q = z.softmax(0), z_adv.softmax(0)
            kl = sum((p[j] * (p[j] / q[j]).log()).item() for j in range(num_classes))
            top += settings.label_weight[y].item() * -p[y].log().item()
            bottom += settings.label_weight[y].item()
            top_kl += settings.robust_weight[y].item() * kl
            bottom_kl += settings.robust_weight[y].item()
        expected = top / bottom + 3.0 * top_kl / bottom_kl  # β of plain_settings is 3
        assert found.item() == pytest.approx(expected, rel=1e-12)

    def test_without_multipliers_it_is_trades_with_beta_one_and_a_half(self, tmp_path, tiny):
        frl = "trades(steps=2)+frl(rate=0, margin_rate=0, start=0)"
        one = quick_train(frl, tmp_path / "frl", tiny())
        other = quick_train("trades(steps=2, beta=1.5)", tmp_path / "trades", tiny())
        assert same_weights(weights(one), weights(other))
        moving = quick_train("trades(steps=2)+frl(start=0)", tmp_path / "moving", tiny())
        assert not same_weights(weights(one), weights(moving))


def released_remargin(model, images, labels, noise, nat, margin, beta):
    """One batch as the remargin script has it: examples, and the loss with one denominator.

    `nat` are λ_nat and `margin` λ_mar of each class; λ_bnd stays at 0.
    """
    size, ys = len(nat), labels.tolist()
    factor = [min(max(math.exp(2 * m), 0.98), 2.5) for m in margin]
    model.eval()
    wanted = model(images).detach().softmax(1)
    x = images + 0.001 * noise
    for _ in range(10):
        x.requires_grad_()
        kl = (wanted * (wanted.log() - model(x).log_softmax(1))).sum()
        (slope,) = torch.autograd.grad(kl, x)
        x = x.detach() + 2 / 255 * slope.sign()
        for n, y in enumerate(ys):
            reach = 8 / 255 * factor[y]
            x[n] = torch.minimum(torch.maximum(x[n], images[n] - reach), images[n] + reach)
        x = x.clamp(0, 1)
    model.train()
    clean, attacked = model(images), model(x)
    top = bottom = 0.0
    for n, y in enumerate(ys):
        first = 1 / size + nat[y] * (size - 1) / size
        first -= sum(nat[j] for j in range(size) if j != y) / size
        second = 1 / size
        logs, others = clean[n].log_softmax(0), attacked[n].log_softmax(0)
        kl = sum(logs[j].exp() * (logs[j] - others[j]) for j in range(size))
        top = top + first * -logs[y] + beta * second * kl
        bottom += first + second
    return x, top / bottom


@pytest.mark.parametrize("num_classes", SIZES)
def test_remargin_is_its_script_in_examples_loss_and_gradients(num_classes, net):
    text = "trades+frl(variant=remargin, start=0, slack=0, rate=2, margin_rate=3)"
    found, chain = play(text, num_classes)
    by_setting = {min(policy.writes): policy for policy in chain.policies}
    nat, margin = by_setting["label_weight"].clean, by_setting["margin"].boundary
    settings = replace(found[-1], beta=torch.ones(num_classes, dtype=torch.float64))
    factors = settings.margin * 255 / 8
    assert factors.max() > factors.min()
    assert nat.max() > 0
    rng = torch.Generator().manual_seed(num_classes)
    images = torch.rand(30, 1, 8, 8, generator=rng, dtype=torch.float64).round(decimals=1)
    labels = torch.randint(num_classes, (30,), generator=rng)
    batch, moment, model = (
        Batch(images, labels, torch.arange(30) + 5),
        Moment(0, 2, 40),
        net(num_classes),
    )
    slots = parse_recipe(text).slots
    assert slots.beta == 1.0
    rows = settings.rows(labels)
    ours = slots.inner.perturb(model, batch, moment, radius=rows.margin, step=rows.step, ball=LINF)[
        "robust"
    ]
    model.train()
    outer = Outer({"clean": model(images), "robust": model(ours)}, labels, rows)
    loss = total(slots.objective.terms(outer), slots.reduction)
    slopes = torch.autograd.grad(loss, list(model.parameters()))
    noise = moment.draws("start").normal(batch.index, (1, 8, 8), torch.float64)
    twin = net(num_classes)  # whose running statistics no forward has moved yet
    theirs, expected = released_remargin(
        twin, images, labels, noise, nat.tolist(), margin.tolist(), 1.0
    )
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    for one, other in zip(
        slopes, torch.autograd.grad(expected, list(twin.parameters())), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
