import copy

import pytest
import torch
import torch.nn.functional as F
from refusals import refused
from short_runs import same_weights, short_run

from classwise.attacks.inner import Moment
from classwise.methods.wu2020_awp import WeightPerturbation
from classwise.objective import Descent
from classwise.recipe_text import parse_recipe

RATE = 0.1


def scene(net, seed=0):
    model = net(seed=seed).train()
    rng = torch.Generator().manual_seed(seed)
    images = torch.rand(8, 1, 8, 8, generator=rng, dtype=torch.float64)
    labels = torch.randint(4, (8,), generator=rng)
    optimiser = torch.optim.SGD(model.parameters(), RATE, weight_decay=0.01)

    def forward():
        return F.cross_entropy(model(images), labels)

    def backward(loss):
        optimiser.zero_grad()
        loss.backward()

    return model, forward, backward, optimiser, images, labels


@pytest.mark.parametrize("size", [0.01, 0.5])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_step_equals_a_straight_transcription(net, size, seed):
    model, forward, backward, optimiser, images, labels = scene(net, seed)
    proxy, shifted = copy.deepcopy(model), copy.deepcopy(model)
    WeightPerturbation(size, 0)(Descent(forward, model, backward, optimiser.step, Moment(0, 0, 10)))

    F.cross_entropy(proxy(images), labels).backward()  # on a copy, as in the released code
    for old, moved in zip(proxy.parameters(), shifted.parameters(), strict=True):
        if old.dim() <= 1:
            continue
        length = sum(value**2 for value in old.grad.flatten().tolist()) ** 0.5
        height = sum(value**2 for value in old.detach().flatten().tolist()) ** 0.5
        with torch.no_grad():
            moved += size * height / length * old.grad
    shifted.zero_grad()
    F.cross_entropy(shifted(images), labels).backward()
    for now, old, moved in zip(
        model.parameters(), proxy.parameters(), shifted.parameters(), strict=True
    ):
        expected = old - RATE * (moved.grad + 0.01 * old)
        torch.testing.assert_close(now, expected, rtol=1e-10, atol=1e-14)
    # BatchNorm saw the batch once, at the perturbed weights
    for name, value in model.named_buffers():
        torch.testing.assert_close(value, shifted.get_buffer(name), rtol=1e-12, atol=1e-14)


def test_the_perturbed_loss_is_higher(net):
    model, forward, *_ = scene(net)
    heights = []

    def noting(loss):
        heights.append(loss.item())
        loss.backward()

    WeightPerturbation(0.05, 0)(Descent(forward, model, noting, lambda: None, Moment(0, 0, 10)))
    assert heights[0] > forward().item()


def test_weights_are_back_bit_for_bit_before_the_update(net):
    model, forward, backward, _, _, _ = scene(net)
    before = [p.detach().clone() for p in model.parameters()]
    seen = []

    def update():
        seen.extend(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))

    WeightPerturbation(0.3, 0)(Descent(forward, model, backward, update, Moment(0, 0, 10)))
    assert seen
    assert all(seen)


def test_weights_are_back_even_if_the_loss_raises(net):
    model, forward, backward, _, _, _ = scene(net)
    before = [p.detach().clone() for p in model.parameters()]
    calls = 0

    def failing():
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ArithmeticError
        return forward()

    with pytest.raises(ArithmeticError):
        WeightPerturbation(0.3, 0)(
            Descent(failing, model, backward, lambda: None, Moment(0, 0, 10))
        )
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    assert model.training
    assert model.norm.track_running_stats


def test_a_weight_without_a_slope_stays_and_nothing_is_divided_by_zero(net):
    model, _, backward, optimiser, images, _ = scene(net)

    def flat():
        return 0 * model(images).sum() + 1.0

    before = [p.detach().clone() for p in model.parameters()]
    WeightPerturbation(0.3, 0)(Descent(flat, model, backward, lambda: None, Moment(0, 0, 10)))
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
    del optimiser


@pytest.mark.parametrize(("start", "first"), [(0, 0), (3, 3), (0.5, 5)])
def test_it_perturbs_from_its_start_on(net, start, first):
    model, forward, backward, _, _, _ = scene(net)
    forwards = []
    model.register_forward_hook(lambda *_: forwards.append(1))
    rule, counts = WeightPerturbation(0.1, start), []
    for epoch in range(8):
        forwards.clear()
        rule(Descent(forward, model, backward, lambda: None, Moment(0, epoch, 10)))
        counts.append(len(forwards))
    assert counts == [1 + (epoch >= first) for epoch in range(8)]


@pytest.mark.parametrize("base", ["at(steps=2)", "trades(steps=2)", "clean"])
def test_without_size_it_is_the_base_bit_for_bit(base, tiny, tmp_path):
    plain = short_run(tmp_path / "plain", base, tiny())
    none = short_run(tmp_path / "none", f"{base}+awp(size=0, start=0)", tiny())
    some = short_run(tmp_path / "some", f"{base}+awp(size=0.05, start=0)", tiny())
    assert same_weights(plain, none)
    assert not same_weights(plain, some)


def test_a_regulariser_takes_in_each_batch_once(tiny, tmp_path):
    base = "at(steps=2)+cosine(strength=0.5)"
    plain = short_run(tmp_path / "plain", base, tiny())
    assert same_weights(plain, short_run(tmp_path / "none", f"{base}+awp(size=0)", tiny()))


def test_the_papers_values_follow_the_base():
    assert parse_recipe("at+awp").slots.step_rule == WeightPerturbation(0.01, 0.0)
    assert parse_recipe("trades+awp").slots.step_rule == WeightPerturbation(0.005, 0.05)
    given = parse_recipe("trades+awp(size=0.02, start=3)").slots.step_rule
    assert given == WeightPerturbation(0.02, 3)


@pytest.mark.parametrize("option", ["size=-0.1", "start=-1"])
def test_values_out_of_range_are_refused(option):
    with refused(f"awp({option.split('=')[0]}="):
        parse_recipe(f"at+awp({option})")
