import json

import pytest
import torch
from refusals import refused
from short_runs import same_weights, short_run

from classwise.attacks.ball import LINF
from classwise.attacks.inner import Moment, starting_images
from classwise.methods import fat
from classwise.methods.zhang2020_fat import FriendlyStop
from classwise.recipe import compose
from classwise.recipe_text import make_method, parse_recipe, read_recipe
from classwise.types import Batch


class TestSchedule:
    def test_patience_follows_the_epoch(self):
        stop = FriendlyStop("original", ((0.0, 0), (0.42, 1), (0.75, 2)))
        found = [stop.patience_at(epoch, 100) for epoch in (0, 41, 42, 74, 75, 99)]
        assert found == [0, 0, 1, 1, 2, 2]
        assert [FriendlyStop("counter", 3).patience_at(epoch, 10) for epoch in (0, 9)] == [3, 3]

    def test_the_watch_takes_the_patience_of_its_epoch(self):
        stop = FriendlyStop("counter", ((0, 0), (5, 2)))
        wrong = torch.tensor([[0.0, 1.0]])
        for epoch, expected in ((4, [False, False, False]), (5, [True, True, False])):
            watch = stop.watch(torch.tensor([0]), epoch, 10)
            assert [watch(wrong).moving.item() for _ in range(3)] == expected

    def test_spellings_are_one(self, tmp_path):
        expected = compose([fat(patience={0: 0, 0.5: 1})])
        assert parse_recipe("fat(patience={0.5: 1, 0: 0})") == expected
        assert parse_recipe("fat(patience=[[0, 0], [0.5, 1]])") == expected
        file = tmp_path / "fat.toml"
        file.write_text('compose = "fat"\n[fat]\npatience = {"0" = 0, "0.5" = 1}')
        assert read_recipe(file) == expected

    def test_it_can_be_read_back_from_a_card(self):
        recipe = parse_recipe("fat(patience={0: 0, 0.5: 1}, rule=original)")
        card = json.loads(json.dumps(recipe.canonical))
        again = compose(make_method(name, options) for name, options in card.items())
        assert again == recipe
        assert again.slots == recipe.slots

    @pytest.mark.parametrize(
        ("patience", "word"),
        [
            *(("-1", "0"), ("1.5", "integer"), ("{1: 2}", "begins with epoch 0"), ("[]", "begins")),
            *(("{0: -1}", "from 0 up"), ("{0: 1.5}", "whole"), ("{soon: 1}", "steps such as")),
            *(("{0: true}", "whole"), ("[1, 2]", "steps such as"), ("long", "integer")),
        ],
    )
    def test_nonsense_is_refused(self, patience, word):
        with refused("fat(patience=", word):
            parse_recipe(f"fat(patience={patience})")


class TestComposition:
    def test_alone_it_brings_at_and_changes_the_stop_rule_only(self):
        slots, plain = parse_recipe("fat").slots, parse_recipe("at").slots
        assert slots.stop == FriendlyStop("counter", 3)
        assert (slots.inner.reference, slots.inner.start) == ("label", "uniform")
        assert (slots.inner.steps, slots.inner.batchnorm) == (10, "train")
        assert slots.inner.jitter == 0
        assert slots.objective == plain.objective

    @pytest.mark.parametrize(("base", "reference"), [("trades", "clean"), ("mart", "label")])
    def test_on_other_bases_all_else_is_theirs(self, base, reference):
        slots = parse_recipe(f"{base}+fat(patience=2)").slots
        assert (slots.inner.reference, slots.inner.start) == (reference, "gaussian")
        assert slots.inner.batchnorm == "eval"
        assert slots.stop == FriendlyStop("counter", 2)

    def test_the_original_comes_with_its_own_schedule_and_noise(self):
        at = parse_recipe("fat(rule=original)").slots
        assert [at.stop.patience_at(e, 120) for e in (0, 49, 50, 89, 90, 119)] == [0, 0, 1, 1, 2, 2]
        assert at.jitter == 0.001
        trades = parse_recipe("trades+fat(rule=original)").slots
        found = [trades.stop.patience_at(e, 85) for e in (29, 30, 49, 50, 69, 70, 84)]
        assert found == [0, 1, 1, 2, 2, 3, 3]
        assert trades.jitter is None
        mart = parse_recipe("mart+fat(rule=original)").slots
        found = [mart.stop.patience_at(e, 90) for e in (0, 19, 20, 39, 40, 59, 60, 79, 80, 89)]
        assert found == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]  # its script runs 90 epochs

    @pytest.mark.parametrize("base", ["trades", "mart"])
    def test_the_original_clips_the_gaussian_start_of_these_bases(self, base):
        recipe = parse_recipe(f"{base}+fat(rule=original)")
        assert (recipe.slots.start, recipe.owners["start"]) == ("clipped gaussian", "fat")
        for text in (base, f"{base}+fat", f"{base}+fat(rule=counter, patience=1)"):
            plain = parse_recipe(text)
            assert (plain.slots.start, plain.owners["start"]) == ("gaussian", base)
        named = parse_recipe(f"{base}+fat(rule=original, start=gaussian)")
        assert (named.slots.start, named.owners["start"]) == ("gaussian", "fat")

    def test_elsewhere_the_start_stays_the_bases(self):
        for text, start in (("at", "uniform"), ("absld(teacher='t')", "gaussian")):
            recipe = parse_recipe(f"{text}+fat(rule=original)")
            assert recipe.slots.start == start
            assert recipe.owners["start"] != "fat"
        with refused("at", "fat", "start"):
            parse_recipe("at+fat(start=gaussian)")

    def test_the_noise_is_an_option(self):
        assert parse_recipe("fat(noise=0.01)").slots.inner.jitter == 0.01
        assert parse_recipe("fat(rule=original, noise=0)").slots.inner.jitter == 0
        with refused("fat(noise="):
            parse_recipe("fat(noise=-0.1)")

    def test_without_an_attack_it_is_refused(self):
        with refused("fat", "clean"):
            parse_recipe("clean+fat")


@pytest.mark.parametrize("base", ["at(steps=3)", "trades(steps=3)", "mart(steps=3)"])
@pytest.mark.parametrize("rule", ["original", "counter"])
def test_endless_patience_is_the_base_bit_for_bit(base, rule, tiny, tmp_path):
    plain = short_run(tmp_path / "plain", base, tiny())
    for patience, same in ((3, True), (0, False)):
        start = "" if base.startswith("at") else ", start=gaussian"  # their own
        text = f"{base}+fat(rule={rule}, patience={patience}, noise=0{start})"
        run = short_run(tmp_path / f"fat {patience}", text, tiny())
        assert same_weights(run, plain) == same


def attack_batch(net, count=40):
    rng = torch.Generator().manual_seed(3)
    images = torch.rand(count, 1, 8, 8, generator=rng, dtype=torch.float64)
    labels = torch.randint(4, (count,), generator=rng)
    radius = torch.full((count,), 0.1, dtype=torch.float64)
    return net(), Batch(images, labels, torch.arange(count)), radius, Moment(0, 0, 10)


def released_friendly(model, images, labels, noise, patience, loss, clip):
    """FAT's attack from its description, one sample after the other, each alone in eval mode.

    Before each of ten updates the prediction is looked at: a right sample moves, a wrong one moves
    while it has patience left and is handed out as it is otherwise.
    """
    model.eval()
    found = []
    for image, label, nudge in zip(images, labels, noise, strict=True):
        x, left = image + 0.001 * nudge, patience
        x = x.clamp(0, 1) if clip else x
        wanted = model(image[None]).detach().softmax(1)
        for _ in range(10):
            x = x.detach().requires_grad_()
            logits = model(x[None])
            if logits.argmax(1).item() != label.item():
                if left == 0:
                    break
                left -= 1
            if loss == "kl":
                height = (wanted * (wanted.log() - logits.log_softmax(1))).sum()
            else:
                height = torch.nn.functional.cross_entropy(logits, label[None])
            (slope,) = torch.autograd.grad(height, x)
            x = x.detach() + 0.007 * slope.sign()
            x = torch.minimum(torch.maximum(x, image - 0.031), image + 0.031).clamp(0, 1)
        found.append(x.detach())
    return torch.stack(found)


@pytest.mark.parametrize(("base", "loss"), [("trades", "kl"), ("mart", "ce")])
@pytest.mark.parametrize("patience", [0, 1, 2, 3])
def test_on_trades_and_mart_it_is_the_released_code(base, loss, patience, net):
    model, batch, _, moment = attack_batch(net, 60)
    images = batch.images.round()  # all at the ends of the range, where clipping counts
    model.eval()
    labels = torch.where(batch.index % 5 > 0, model(images).argmax(1), batch.labels)
    batch = Batch(images, labels, batch.index)
    step = torch.full((60,), 0.007, dtype=torch.float64)
    radius = torch.full((60,), 0.031, dtype=torch.float64)
    text = f"{base}+fat(rule=original, patience={patience})"
    inner = parse_recipe(text).slots.inner
    ours = inner.perturb(model, batch, moment, radius=radius, step=step, ball=LINF)["robust"]
    noise = moment.draws("start").normal(batch.index, (1, 8, 8), torch.float64)
    facts = (model, images, labels, noise, patience, loss)
    torch.testing.assert_close(ours, released_friendly(*facts, clip=True), rtol=0, atol=1e-12)
    unclipped = released_friendly(*facts, clip=False)
    # Only the clip differs; on TRADES it turns whole steps around, not just the start's noise.
    assert (ours - unclipped).abs().max() > (0.02 if base == "trades" else 0.001)


def test_the_two_rules_without_patience_differ_on_a_model(net):
    model, batch, radius, moment = attack_batch(net)
    facts = {"radius": radius, "step": radius / 4, "ball": LINF}
    begin = starting_images("uniform", batch, radius, LINF, moment.draws("start"))
    ends = {}
    for rule in ("counter", "original"):
        text = f"at(steps=4, batchnorm=eval)+fat(rule={rule}, patience=0, noise=0)"
        ends[rule] = parse_recipe(text).slots.inner.perturb(model, batch, moment, **facts)["robust"]
    assert torch.equal(ends["counter"], begin)
    model.eval()
    right = model(begin).argmax(1) == batch.labels
    assert 0 < right.sum() < len(right)
    moved = (ends["original"] != begin).flatten(1).any(1)
    assert torch.equal(moved, right)


def test_a_targeted_attack_stops_at_any_error_not_at_its_target(net):
    model, batch, radius, moment = attack_batch(net)
    odds = torch.ones(len(batch), 4, dtype=torch.float64)
    text = "at(steps=4, batchnorm=eval)+fat(rule=original, patience=0, noise=0)"
    found = parse_recipe(text).slots.inner.perturb(
        model, batch, moment, radius=radius, step=radius / 4, ball=LINF, target_odds=odds
    )["robust"]
    begin = starting_images("uniform", batch, radius, LINF, moment.draws("start"))
    model.eval()
    wrong = model(begin).argmax(1) != batch.labels
    assert torch.equal(found[wrong], begin[wrong])
    assert not torch.equal(found[~wrong], begin[~wrong])


@pytest.mark.parametrize(("wrong", "forwards"), [(0, 10), (1, 10), (40, 2)])
@pytest.mark.parametrize("look", [False, True])
def test_every_inspection_forwards_the_whole_batch_until_nobody_moves(wrong, forwards, look, net):
    model, batch, radius, moment = attack_batch(net)
    labels = model.train()(batch.images).argmax(1)  # without a radius it stays like that
    batch = Batch(batch.images, labels + (batch.index >= 40 - wrong), batch.index)
    seen = []
    model.register_forward_hook(lambda module, args, out: seen.append(len(out)))  # noqa: ARG005
    inner = parse_recipe(f"fat(patience=1, last_look={str(look).lower()})").slots.inner
    batch = Batch(batch.images, batch.labels % 4, batch.index)
    inner.perturb(model, batch, moment, radius=0 * radius, step=0 * radius, ball=LINF)
    assert seen == [40] * (forwards + (look and wrong < 40))


@pytest.mark.parametrize("base", ["at(batchnorm=eval)", "at(batchnorm=batch)", "trades", "mart"])
def test_a_last_look_that_nobody_remembers_is_refused(base):
    with refused("last_look", "BatchNorm"):
        parse_recipe(f"{base}+fat(last_look=true)")
