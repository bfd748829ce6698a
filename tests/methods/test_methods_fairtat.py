import itertools
import math

import pytest
import torch
from boundaries import (
    draw_confusion,
    files,
    interrupted_train,
    plain_settings,
    quick_train,
    rates,
    same_weights,
    weights,
)
from refusals import refused

from classwise.attacks.ball import parse_norm
from classwise.attacks.inner import Moment
from classwise.classes.counts import ClassCounts
from classwise.classes.settings import TRAIN_ROBUST, Chain, Feedback
from classwise.methods.medi2024_fairtat import odds_table
from classwise.recipe_text import parse_recipe
from classwise.training.loop import Trainer
from classwise.training.step import Step
from classwise.types import Batch

SIZES = [2, 3, 10]


def odds_after(text, table, epoch=1):
    chain = Chain(parse_recipe(text).slots.policies)
    counts = {TRAIN_ROBUST: ClassCounts(table)} if chain.needs(epoch) else {}
    base = plain_settings(len(table))
    settings, _ = chain.update(base, Feedback(epoch, 10, table.sum(1), counts))
    return settings.target_odds


@pytest.mark.parametrize("odds", ["cfps", "softmax"])
@pytest.mark.parametrize("num_classes", SIZES)
@pytest.mark.parametrize("missing", [(), (1,)])
def test_odds_equal_a_straight_loop(odds, num_classes, missing):
    table = draw_confusion(num_classes, 5, missing)
    found = odds_after(f"at+fairtat(odds={odds})", table).tolist()
    rows, every = table.tolist(), range(num_classes)
    mistakes = sum(rows[a][b] for a in every for b in every if a != b)
    share = [sum(rows[a][j] for a in every if a != j) / mistakes for j in every]
    if odds == "softmax":
        mass = sum(math.exp(2 * c) for c in share)
        share = [math.exp(2 * c) / mass for c in share]
    for y in every:
        others = [share[j] if j != y else 0.0 for j in every]
        if not sum(others):
            others = [float(j != y) for j in every]
        assert found[y] == pytest.approx([o / sum(others) for o in others], rel=1e-12)


@pytest.mark.parametrize("num_classes", SIZES)
@pytest.mark.parametrize("text", ["at+fairtat", "at+fairtat(odds=uniform)"])
def test_the_first_epoch_aims_uniformly(text, num_classes):
    table = draw_confusion(num_classes, 1)
    epochs = (0, 3) if "uniform" in text else (0,)
    expected = (1 - torch.eye(num_classes).double()) / (num_classes - 1)
    for epoch in epochs:
        torch.testing.assert_close(odds_after(text, table, epoch), expected)


def test_without_mistakes_every_other_class_is_a_target():
    perfect = torch.diag(torch.tensor([3, 4, 5]))
    expected = (1 - torch.eye(3).double()) / 2
    torch.testing.assert_close(odds_after("at+fairtat", perfect), expected)


def test_a_class_that_draws_all_mistakes_aims_uniformly_itself():
    table = torch.tensor([[5, 2, 0], [0, 6, 0], [0, 3, 4]])
    assert odds_after("at+fairtat", table).tolist() == [[0, 1, 0], [0.5, 0, 0.5], [0, 1, 0]]


def test_the_softmax_is_nearly_flat_as_in_the_released_code():
    share = torch.tensor([0.04, 0.2, *[0.76 / 8] * 8]).double()
    row = odds_table((2 * share).softmax(0))[5]
    assert (row[1] / row[0]).item() == pytest.approx(1.377, abs=1e-3)
    row = odds_table(share)[5]
    assert (row[1] / row[0]).item() == pytest.approx(5)


def batch_of(num_classes, seed=3):
    rng = torch.Generator().manual_seed(seed)
    images = torch.rand(8, 1, 8, 8, generator=rng, dtype=torch.float64)
    labels = torch.randint(num_classes, (8,), generator=rng)
    return Batch(images, labels, torch.arange(100, 108))


def perturbed(text, model, batch, settings):
    rows = settings.rows(batch.labels)
    return parse_recipe(text).slots.inner.perturb(
        model,
        batch,
        Moment(0, 2, 10),
        radius=rows.margin,
        step=rows.step,
        ball=parse_norm("Linf"),
        target_odds=rows.target_odds,
    )["robust"]


def test_uniform_odds_are_random_target_adversarial_training(net):
    model, batch = net(4), batch_of(4)
    text = "at(steps=3, batchnorm=eval)+fairtat(odds=uniform)"
    chain = Chain(parse_recipe(text).slots.policies)
    settings, _ = chain.update(plain_settings(4), Feedback(0, 10, None))
    found = perturbed(text, model, batch, settings)
    moment = Moment(0, 2, 10)
    chance = moment.draws("targets").uniform(batch.index, (1,), torch.float64)
    noise = moment.draws("start").uniform(batch.index, (1, 8, 8), torch.float64)
    model.eval()
    for n, (image, y) in enumerate(zip(batch.images, batch.labels.tolist(), strict=True)):
        others = [k for k in range(4) if k != y]
        target = torch.tensor([others[int(chance[n] * 3)]])
        x = (image + 0.2 * (2 * noise[n] - 1)).clamp(0, 1)
        for _ in range(3):
            x = x.detach().requires_grad_()
            loss = torch.nn.functional.cross_entropy(model(x[None]), target)
            (slope,) = torch.autograd.grad(loss, x)
            delta = (x.detach() - 0.05 * slope.sign() - image).clamp(-0.2, 0.2)  # down, to y_t
            x = (image + delta).clamp(0, 1)
        torch.testing.assert_close(found[n], x, rtol=0, atol=1e-12)


def test_two_classes_leave_the_untargeted_attack(net):
    model, batch = net(2), batch_of(2)
    chain = Chain(parse_recipe("at+fairtat").slots.policies)
    settings, _ = chain.update(plain_settings(2), Feedback(0, 10, None))
    # Train-mode BatchNorm would couple samples, whose slopes the two losses scale differently.
    one = perturbed("at(steps=4, batchnorm=eval)+fairtat", model, batch, settings)
    other = perturbed("at(steps=4, batchnorm=eval)", model, batch, plain_settings(2))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_it_composes_as_in_the_papers_rows():
    recipe = parse_recipe("trades+cfa+fairtat")
    assert recipe.owners["class target_odds"] == "fairtat"
    assert recipe.owners["class margin"] == "cfa"
    assert recipe.slots.inner.start == "gaussian"


def test_bad_company_and_values_are_refused():
    with refused("fairtat", "clean"):
        parse_recipe("clean+fairtat")
    with refused("fairtat", "target", "target_odds"):
        parse_recipe("at+fairtat+target")
    with refused("fairtat(odds='cfs')", "'cfps', 'softmax' or 'uniform'"):
        parse_recipe("at+fairtat(odds=cfs)")


def followed(text, out, source, monkeypatch, **options):
    """Train, and note what every batch was trained with and what was counted in it."""
    seen, real = [], Step.__call__

    def noting(self, batch, settings, kept, moment, *rest):
        counts, losses = real(self, batch, settings, kept, moment, *rest)
        seen.append((moment.epoch, settings, counts[TRAIN_ROBUST].confusion))
        return counts, losses

    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", noting)
        run = quick_train(text, out, source, **options)
    return run, seen


def straight_odds(rows):
    every = range(len(rows))
    called = [sum(rows[a][j] for a in every if a != j) for j in every]
    table = []
    for y in every:
        others = [called[j] if j != y else 0 for j in every]
        others = others if sum(others) else [float(j != y) for j in every]
        table.append([odd / sum(others) for odd in others])
    return table


class TestEvery:
    """Algorithm 1, lines 23 to 28: odds and margins anew inside the epoch."""

    @pytest.mark.parametrize("every", [1, 2, 3])
    @pytest.mark.parametrize("start", [0, 1])
    def test_odds_and_margins_equal_a_straight_loop(
        self, every, start, tmp_path, tiny, monkeypatch
    ):
        text = f"at(steps=2)+ccm(start={start}, every={every})+fairtat(every={every})"
        source = tiny(per_class=13, classes=7)
        _, seen = followed(text, tmp_path / "run", source, monkeypatch, epochs=2, batch_size=8)
        batches = len(seen) // 2
        assert batches > 2 * every
        table, done = None, 0  # the table whose statistics are in force, and batches of this epoch
        for number, (epoch, settings, _) in enumerate(seen):
            place = number % batches
            begun = [c for e, _, c in seen[number - place : number] if e == epoch]
            if place == 0 and epoch:
                table = sum(c for e, _, c in seen if e == epoch - 1).tolist()
            elif place and place % every == 0:
                table, done = sum(begun).tolist(), done + 1
            expected = [[float(a != b) / 6 for b in range(7)] for a in range(7)]
            margins = [0.2] * 7
            if table is not None:
                expected = straight_odds(table)
                if epoch >= start:
                    t, _ = rates(torch.tensor(table))
                    margins = [(0.5 + t[k]) * 0.2 for k in range(7)]
            for row, wanted in zip(settings.target_odds.tolist(), expected, strict=True):
                assert row == pytest.approx(wanted, abs=1e-6)
            assert settings.margin.tolist() == pytest.approx(margins, rel=1e-6)
        assert done == 2 * ((batches - 1) // every)

    def test_one_method_may_be_renewed_while_the_other_waits(self, tmp_path, tiny, monkeypatch):
        text = "at(steps=2)+ccm+fairtat(every=1)"
        _, seen = followed(text, tmp_path / "run", tiny(), monkeypatch, epochs=2)
        second = [settings for epoch, settings, _ in seen if epoch == 1]
        assert all(torch.equal(s.margin, second[0].margin) for s in second)
        assert not any(
            torch.equal(one.target_odds, two.target_odds) for one, two in itertools.pairwise(second)
        )

    def test_an_interval_longer_than_the_epoch_is_once_per_epoch(self, tmp_path, tiny):
        plain = quick_train("at(steps=2)+ccm+fairtat", tmp_path / "plain", tiny())
        late = "at(steps=2)+ccm(every=500)+fairtat(every=500)"
        assert same_weights(weights(quick_train(late, tmp_path / "late", tiny())), weights(plain))
        often = "at(steps=2)+ccm(every=1)+fairtat(every=1)"
        other = quick_train(often, tmp_path / "often", tiny())
        assert not same_weights(weights(other), weights(plain))

    def test_nothing_is_done_inside_an_epoch_where_nobody_asks(self, tmp_path, tiny, monkeypatch):
        def never(*args):
            raise AssertionError(args)

        monkeypatch.setattr(Trainer, "renew_policies", never)
        quick_train("at(steps=2)+cfa+fairtat", tmp_path / "run", tiny())

    @pytest.mark.parametrize("epoch", [1, 2])
    def test_a_resumed_run_is_the_straight_one(self, epoch, tmp_path, tiny, monkeypatch):
        text = "at(steps=2)+ccm(start=0, every=2)+fairtat(every=1)"
        straight = quick_train(text, tmp_path / "straight", tiny())
        resumed = interrupted_train(text, tmp_path / "resumed", tiny(), monkeypatch, epoch=epoch)
        assert files(straight) == files(resumed)

    @pytest.mark.parametrize("call", ["fairtat(every=0)", "ccm(every=0)", "ccm(every=1.5)"])
    def test_intervals_are_whole_numbers_of_batches(self, call):
        with refused(call.split("=")[0] + "="):
            parse_recipe(f"at+{call}")


def test_a_resumed_run_is_the_straight_one(tmp_path, tiny, monkeypatch):
    text = "at(steps=2)+ccm+fairtat"
    straight = quick_train(text, tmp_path / "straight", tiny())
    resumed = interrupted_train(text, tmp_path / "resumed", tiny(), monkeypatch, epoch=2)
    assert files(straight) == files(resumed)
