from dataclasses import replace

import pytest
import torch
from boundaries import (
    draw_counts,
    files,
    interrupted_train,
    plain_settings,
    quick_train,
    same_weights,
    weights,
)
from equality.wat import experts
from refusals import refused

from classwise.attacks.ball import parse_norm
from classwise.attacks.inner import Moment
from classwise.attacks.threat import Threat
from classwise.classes.settings import Feedback
from classwise.data.batches import Batches
from classwise.methods.li2023_wat import VALID, ExpertWeights
from classwise.objective import Outer, total
from classwise.recipe_text import parse_recipe
from classwise.training.validate import Checker

SIZES = [2, 3, 10]


def play(rate, num_classes, epochs=4, missing=()):
    policy, found = ExpertWeights(rate), []
    for epoch in range(epochs + 1):
        needed = policy.needs(epoch)
        counts = {seen: draw_counts(num_classes, epoch, missing) for seen in needed}
        feedback = Feedback(epoch, 10, None, counts)
        settings, policy = policy.update(plain_settings(num_classes), feedback)
        found.append(settings)
    return found, policy


@pytest.mark.parametrize("num_classes", SIZES)
@pytest.mark.parametrize("missing", [(), (1,)])
@pytest.mark.parametrize("rate", [0.1, 1.5])
def test_running_weights_equal_a_straight_loop(num_classes, missing, rate):
    found, _ = play(rate, num_classes, missing=missing)
    cost = [0.0] * (num_classes + 1)
    for epoch, settings in enumerate(found):
        expert = [1.0] * (num_classes + 1)
        if epoch:
            counts = draw_counts(num_classes, epoch, missing)
            sums, sizes = counts.losses["total"].tolist(), counts.sizes.tolist()
            average = sum(sums) / sum(sizes)
            for k in range(num_classes):
                cost[k] += sums[k] / sizes[k] if sizes[k] else average
            cost[num_classes] += average
            expert = experts(cost, rate)
        for k in range(num_classes):
            weight = expert[k] + expert[num_classes]
            assert settings.label_weight[k].item() == pytest.approx(weight, rel=1e-12)
            assert settings.robust_weight[k].item() == pytest.approx(weight, rel=1e-12)


@pytest.mark.parametrize("num_classes", SIZES)
def test_without_rate_the_loss_is_trades_times_2k_over_k_plus_1(num_classes):
    found, _ = play(0.0, num_classes)
    rng = torch.Generator().manual_seed(0)
    labels = torch.randint(num_classes, (8,), generator=rng)
    outputs = dict(
        zip(
            ("clean", "robust"),
            torch.randn(2, 8, num_classes, generator=rng).double(),
            strict=True,
        )
    )
    slots = parse_recipe("trades+wat(rate=0)").slots

    def loss(settings):
        terms = slots.objective.terms(Outer(outputs, labels, settings.rows(labels)))
        return total(terms, slots.reduction or "mean").item()

    plain = loss(plain_settings(num_classes))
    assert loss(found[0]) == pytest.approx(2 * plain, rel=1e-14)
    for settings in found[1:]:
        factor = 2 * num_classes / (num_classes + 1)
        assert loss(settings) == pytest.approx(factor * plain, rel=1e-12)


def test_the_first_epoch_has_twice_the_loss_of_trades(tmp_path, tiny):
    once = {"epochs": 1, "weight_decay": 0.0}
    one = quick_train("trades(steps=2)+wat", tmp_path / "wat", tiny(), lr=0.03125, **once)
    other = quick_train("trades(steps=2)", tmp_path / "trades", tiny(), lr=0.0625, **once)
    assert same_weights(weights(one), weights(other))


def test_long_runs_do_not_overflow():
    policy = replace(ExpertWeights(1.0), cost=torch.tensor([1e4, 2e4, 0.0, 1e4]).double())
    feedback = Feedback(9, 10, None, {VALID: draw_counts(3, 1)})
    settings, _ = policy.update(plain_settings(3), feedback)
    assert settings.label_weight.tolist() == pytest.approx([0, 3, 0], abs=1e-9)


@pytest.mark.parametrize("text", ["trades(steps=2, beta=3)", "at(steps=2)"])
def test_the_cost_is_the_recipes_own_loss_on_held_out_images(text, tiny, net):
    model, data = net(10).float(), tiny(per_class=4).test
    batches = Batches.of(data, 7, torch.device("cpu"))
    slots, moment = parse_recipe(text).slots, Moment(0, 1, 3)
    base = replace(plain_settings(10), beta=torch.full((10,), 3.0))
    base = base._each(torch.Tensor.float)
    ball = parse_norm("Linf")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    checker = Checker({"valid": batches}, 10, Threat(ball, 0.2), 0, slots, base)
    found = checker.look(model, frozenset({VALID}), moment)[VALID]
    expected = torch.zeros(10, dtype=torch.float64)
    model.eval()
    for batch in batches.in_order():
        rows = base.rows(batch.labels)
        attacked = replace(slots.inner, batchnorm="eval").perturb(
            model, batch, moment, radius=rows.margin, step=rows.step, ball=ball
        )["robust"]
        for image, moved, y in zip(batch.images, attacked, batch.labels.tolist(), strict=True):
            p = model(image[None])[0].softmax(0).double()
            q = model(moved[None])[0].softmax(0).double()
            if text.startswith("at"):
                expected[y] += -q[y].log().item()
            else:
                expected[y] += -p[y].log().item() + 3 * (p * (p / q).log()).sum().item()
    torch.testing.assert_close(found.losses["total"], expected, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(before[n], value) for n, value in model.state_dict().items())


def test_a_resumed_run_is_the_straight_one(tmp_path, tiny, monkeypatch):
    text = "trades(steps=2)+wat"
    straight = quick_train(text, tmp_path / "straight", tiny())
    resumed = interrupted_train(text, tmp_path / "resumed", tiny(), monkeypatch, epoch=3)
    assert files(straight) == files(resumed)


def test_bad_company_and_values_are_refused(tmp_path, tiny):
    with refused("wat", "clean"):
        parse_recipe("clean+wat")
    with refused("frl", "wat", "both set"):
        parse_recipe("trades+frl+wat")
    with refused("wat(rate=-1)", "greater than or equal to 0"):
        parse_recipe("trades+wat(rate=-1)")
    with refused("wat", "validation", "valid="):
        quick_train("trades(steps=2)+wat", tmp_path / "run", tiny(), valid="0")
