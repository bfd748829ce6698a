import math
from dataclasses import replace

import pytest
import torch
from boundaries import (
    draw_confusion,
    files,
    interrupted_train,
    plain_settings,
    quick_train,
    same_weights,
    weights,
)
from equality.frl import SCRIPTS, multipliers
from refusals import refused

from classwise.attacks.ball import LINF
from classwise.attacks.inner import Moment
from classwise.classes.counts import ClassCounts
from classwise.classes.settings import Chain, Feedback
from classwise.methods.xu2021_frl import ATTACKED, CLEAN
from classwise.objective import Outer, total
from classwise.recipe_text import parse_recipe
from classwise.training.loop import Trainer
from classwise.training.presets import apply_preset
from classwise.training.run import Run
from classwise.training.schedule import learning_rate
from classwise.types import Batch

SIZES = [2, 3, 10]


def world(num_classes, epoch, missing=()):
    """Clean and attacked validation tables; the attack costs some classes more than others."""
    clean = draw_confusion(num_classes, epoch, missing) + torch.diag(
        torch.tensor([0 if k in missing else 40 for k in range(num_classes)])
    )
    attacked = clean.clone()
    for k in range(num_classes):
        lost = int(clean[k, k]) * (k + 1 + epoch) // (2 * num_classes + epoch)
        attacked[k, k] -= lost
        attacked[k, (k + 1) % num_classes] += lost
    return clean, attacked


def play(text, num_classes, epochs=3, missing=(), of=40):
    """Settings at each boundary from e = 0 on."""
    chain = Chain(parse_recipe(text).slots.policies)
    found = []
    for epoch in range(epochs):
        counts = {}
        if chain.needs(epoch):
            assert chain.needs(epoch) == {CLEAN, ATTACKED}
            clean, attacked = world(num_classes, epoch, missing)
            counts = {CLEAN: ClassCounts(clean), ATTACKED: ClassCounts(attacked)}
        settings, chain = chain.update(
            plain_settings(num_classes, margin=8 / 255, step=2 / 255),
            Feedback(epoch, of, torch.ones(num_classes), counts),
        )
        found.append(settings)
    return found, chain


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


class TestWarmStart:
    @pytest.mark.parametrize("variant", SCRIPTS)
    def test_the_same_run_trains_plain_trades_until_the_start(self, variant, tmp_path, tiny):
        text = f"trades(steps=2)+frl(variant={variant}, start=3)"
        one = quick_train(text, tmp_path / "frl", tiny())
        other = quick_train("trades(steps=2)", tmp_path / "trades", tiny())  # β = 6
        assert same_weights(weights(one), weights(other))
        assert "pgd-20" not in one.history[1]["valid"]["live"]
        assert "pgd-20" in one.history[2]["valid"]["live"]

    @pytest.mark.parametrize("variant", SCRIPTS)
    @pytest.mark.parametrize("num_classes", SIZES)
    def test_beta_is_six_before_the_start_and_the_bases_from_then_on(self, variant, num_classes):
        text = f"trades+frl(variant={variant}, start=0.5, warmup_beta=%s)"
        for warmup in (6.0, 4.5):
            found, _ = play(text % warmup, num_classes, epochs=6, of=6)
            betas = [settings.beta.tolist() for settings in found]
            assert betas == [[warmup] * num_classes] * 3 + [[3.0] * num_classes] * 3

    def test_the_warm_ups_beta_is_that_of_trades_unless_somebody_names_one(self):
        def named(text):
            recipe = parse_recipe(text)
            return recipe.canonical["frl"]["warmup_beta"], recipe.slots.beta

        assert named("trades+frl") == (6.0, 1.5)
        assert named("trades+frl(variant=remargin)") == (6.0, 1.0)
        assert named("trades+frl(warmup_beta=2)") == (2.0, 1.5)
        assert named("trades(beta=4)+frl") == (None, 4.0)  # the same β throughout
        assert named("trades(beta=4)+frl(warmup_beta=5)") == (5.0, 4.0)
        assert named("mart+frl") == (None, 5.0)
        assert named("bat+frl") == (6.0, 1.5)
        assert named("trades+frl(begin='a.safetensors')") == (None, 1.5)
        assert named("trades+frl(begin='a.safetensors', start=2)") == (6.0, 1.5)

    @pytest.mark.parametrize("when", ["start=0", "begin='a.safetensors'"])
    def test_a_beta_for_no_warm_up_is_refused(self, when):
        with refused("frl(warmup_beta=6)", "no warm-up", "leave warmup_beta out"):
            parse_recipe(f"trades+frl({when}, warmup_beta=6)")

    def test_the_first_epochs_are_recorded_with_the_beta_they_had(self, tmp_path, tiny):
        run = quick_train("trades(steps=2)+frl(start=2)", tmp_path / "run", tiny())
        assert [line["settings"]["beta"] for line in run.history] == [
            [beta] * 10 for beta in (6.0, 6.0, 1.5)
        ]

    @pytest.mark.parametrize(
        ("start", "epochs", "first"), [(0, 8, 0), (0.75, 8, 6), (0.01, 8, 1), (5, 8, 5)]
    )
    def test_start_is_an_epoch_or_a_fraction(self, start, epochs, first):
        found, _ = play(f"trades+frl(start={start})", 3, epochs=epochs, of=epochs)
        base = plain_settings(3, margin=8 / 255)
        moved = [not torch.equal(settings.margin, base.margin) for settings in found]
        assert moved == [epoch >= first for epoch in range(epochs)]

    def test_three_quarters_of_the_run_unless_a_model_is_given(self):
        assert parse_recipe("trades+frl").canonical["frl"]["start"] == 0.75
        given = parse_recipe("trades+frl(begin='a.safetensors')")
        assert given.canonical["frl"]["start"] == 0
        assert given.slots.begin == "a.safetensors"
        late = parse_recipe("trades+frl(begin='a.safetensors', start=2)")
        assert late.canonical["frl"]["start"] == 2

    def test_it_begins_from_the_weights_of_a_file(self, tmp_path, tiny):
        first = quick_train("trades(steps=2)", tmp_path / "first", tiny())
        file = first.weights_path("last")
        text = f"trades(steps=2)+frl(begin='{file}')"
        run = Run(tmp_path / "second")
        trainer = Trainer(run, parse_recipe(text), first.config, tiny(), torch.device("cpu"))
        begun = trainer.model.state_dict()
        assert same_weights(weights(first), begun)


class TestCompany:
    def test_the_beta_of_trades_follows_the_variant(self):
        betas = {
            text: parse_recipe(text).slots.beta
            for text in (
                *("trades", "trades+frl", "trades+frl(variant=reweight)"),
                *("trades+frl(variant=remargin)", "trades(beta=4)+frl"),
            )
        }
        assert list(betas.values()) == [6.0, 1.5, 1.5, 1.0, 4.0]

    def test_reweighting_alone_leaves_the_margin_to_others(self):
        recipe = parse_recipe("trades+frl(variant=reweight)+ccm")
        assert recipe.owners["class margin"] == "ccm"
        assert recipe.owners["class label_weight"] == "frl"

    def test_a_named_beta_leaves_the_class_setting_to_others(self):
        with refused("frl", "ccr", "beta"):
            parse_recipe("trades+frl(variant=reweight)+ccr")
        recipe = parse_recipe("trades(beta=1.5)+frl(variant=reweight)+ccr")
        assert recipe.owners["class beta"] == "ccr"

    @pytest.mark.parametrize("base", ["at", "clean"])
    def test_a_base_with_one_term_is_refused(self, base):
        with refused("frl", base, "trades"):
            parse_recipe(f"{base}+frl")

    def test_without_validation_data_it_says_what_to_do(self, tmp_path, tiny):
        with refused("frl", "validation", "valid="):
            quick_train("trades(steps=2)+frl(start=0)", tmp_path / "run", tiny(), valid="0")

    @pytest.mark.parametrize(
        ("option", "allowed"),
        [
            ("bound=1", "less than 1"),
            ("rate=-1", "greater than or equal to 0"),
            ("slack=2", "less than or equal to 1"),
            ("widest=0.5", "greater than or equal to 1"),
            ("narrowest=0", "greater than 0"),
            ("halve_every=0", "greater than or equal to 1"),
            ("variant=rw", "'both', 'reweight' or 'remargin'"),
        ],
    )
    def test_values_out_of_range_name_the_range(self, option, allowed):
        with refused(f"frl({option.split('=')[0]}", allowed):
            parse_recipe(f"trades+frl({option})")


def test_a_resumed_run_is_the_straight_one(tmp_path, tiny, monkeypatch):
    text = "trades(steps=2)+frl(start=1, halve_every=2)"
    straight = quick_train(text, tmp_path / "straight", tiny())
    for epoch in (1, 3):
        resumed = interrupted_train(text, tmp_path / str(epoch), tiny(), monkeypatch, epoch)
        assert files(straight) == files(resumed)


def test_its_own_preset_fine_tunes_a_given_model_gently():
    given = parse_recipe("trades+frl(begin='a.safetensors')")
    recipe, config = apply_preset("paper:frl", given, {})
    assert (config.lr, config.epochs, config.drops, config.valid) == (0.001, 40, (), "last:0.06")
    assert {policy.start for policy in recipe.slots.policies} == {0}


def test_beside_the_shared_protocol_its_rate_is_reached_where_the_warm_up_ends():
    recipe, config = apply_preset("paper", parse_recipe("trades+frl"), {})
    (start,) = {policy.start for policy in recipe.slots.policies}
    assert learning_rate(config, start * config.epochs) == pytest.approx(0.001)
