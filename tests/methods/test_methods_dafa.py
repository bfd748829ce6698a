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
from equality.dafa import class_weights
from refusals import refused

from classwise.attacks.ball import LINF
from classwise.attacks.inner import Moment
from classwise.classes.counts import ClassCounts
from classwise.classes.settings import TRAIN_ROBUST, Feedback
from classwise.methods.lee2024_dafa import SimilarityWeights, similarity_weights
from classwise.objective import Outer, total
from classwise.recipe_text import parse_recipe
from classwise.types import Batch

SIZES = [2, 3, 10]


def straight(counts, strength):
    """The released loops over the classes that have samples; the others keep 1."""
    sizes = counts.sizes.tolist()
    there = [k for k, size in enumerate(sizes) if size]
    similarity = [[counts.probability[i, j].item() / sizes[i] for j in there] for i in there]
    found = [1.0] * len(sizes)
    for k, weight in zip(there, class_weights(similarity, strength), strict=True):
        found[k] = weight
    return found


class TestWeights:
    @pytest.mark.parametrize("num_classes", SIZES)
    @pytest.mark.parametrize("missing", [(), (1,)])
    @pytest.mark.parametrize("strength", [0.0, 1.0, 1.5])
    def test_equal_a_straight_loop(self, num_classes, missing, strength):
        counts = draw_counts(num_classes, 7, missing)
        found = similarity_weights(counts, strength)
        assert found.tolist() == pytest.approx(straight(counts, strength), rel=1e-13)

    @pytest.mark.parametrize("num_classes", SIZES)
    @pytest.mark.parametrize("missing", [(), (0,)])
    def test_what_one_class_of_a_pair_gains_the_other_loses(self, num_classes, missing):
        found = similarity_weights(draw_counts(num_classes, 8, missing), 1.5)
        assert (found - 1).sum().item() == pytest.approx(0, abs=1e-13)
        assert (found - 1).abs().max() > 0.01 or num_classes - len(missing) < 2

    def test_a_hard_class_gains_from_the_easy_one_it_is_taken_for(self):
        chances = torch.tensor(
            [[0.4, 0.5, 0.1], [0.1, 0.8, 0.1], [0.05, 0.05, 0.9]], dtype=torch.float64
        )
        counts = ClassCounts(torch.eye(3, dtype=torch.int64) * 10, 10 * chances)
        weights = similarity_weights(counts, 1.0)
        # 0 looks like 1: it gains .5·.8 from it and .1·.9 from 2; 1 gains .1·.9 from 2.
        expected = [1 + 0.4 + 0.09, 1 - 0.4 + 0.09, 1 - 0.09 - 0.09]
        assert weights.tolist() == pytest.approx(expected, rel=1e-14)


class TestWhen:
    @pytest.mark.parametrize(
        ("start", "epochs", "first"), [(70 / 110, 110, 70), (0, 10, 1), (3, 10, 3), (0.5, 10, 5)]
    )
    def test_it_fires_once_and_keeps_what_it_found(self, start, epochs, first):
        policy, base = SimilarityWeights(1.0, start, 0.1), plain_settings(3)
        fired = straight(draw_counts(3, first), 1.0)
        for epoch in range(epochs + 1):
            asked = policy.needs(epoch)
            assert policy.details(epoch) == ({"probability"} if asked else frozenset())
            if epoch:
                assert bool(asked) == (epoch == first)
            counts = {TRAIN_ROBUST: draw_counts(3, epoch)} if asked else {}
            settings, policy = policy.update(base, Feedback(epoch, epochs, None, counts))
            expected = fired if epoch >= first else [1.0] * 3
            for table in ("label_weight", "margin", "step"):
                scale = getattr(settings, table) / getattr(base, table)
                assert scale.tolist() == pytest.approx(expected, rel=1e-12)
            assert torch.equal(settings.robust_weight, base.robust_weight)

    def test_weights_do_not_fall_below_the_floor(self):
        counts = {TRAIN_ROBUST: draw_counts(10, 1)}
        assert min(straight(counts[TRAIN_ROBUST], 20.0)) < 0
        policy = SimilarityWeights(20.0, 1, 0.25)
        settings, after = policy.update(plain_settings(10), Feedback(1, 5, None, counts))
        assert after.weights.min() == 0.25
        assert settings.margin.min().item() == pytest.approx(0.25 * 0.2)


def released_at(model, images, labels, noise, share):
    """DAFA's AT branch without its second step; share[k] scales step, margin and loss of k."""
    ys = labels.tolist()
    model.eval()
    x = images + 0.001 * noise
    for _ in range(10):
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(torch.nn.functional.cross_entropy(model(x), labels), x)
        moved = []
        for n, y in enumerate(ys):
            there = x[n].detach() + share[y] * 0.007 * slope[n].sign()
            reach = share[y] * 0.031
            there = torch.minimum(torch.maximum(there, images[n] - reach), images[n] + reach)
            moved.append(there.clamp(0, 1))
        x = torch.stack(moved)
    model.train()
    logs = model(x).log_softmax(1)
    return x, sum(share[y] * -logs[n, y] for n, y in enumerate(ys)) / len(ys)


@pytest.mark.parametrize("num_classes", SIZES)
def test_on_at_the_released_start_and_mode_give_its_examples_loss_and_gradients(num_classes, net):
    recipe = parse_recipe("at(start=gaussian, batchnorm=eval)+dafa(start=1)")
    counts = {TRAIN_ROBUST: draw_counts(num_classes, 4)}
    (policy,) = recipe.slots.policies
    base = plain_settings(num_classes, margin=0.031, step=0.007)
    settings, after = policy.update(base, Feedback(1, 110, None, counts))
    share = after.weights.tolist()
    assert max(share) > 1.02
    rng = torch.Generator().manual_seed(num_classes)
    images = torch.rand(30, 1, 8, 8, generator=rng, dtype=torch.float64).round(decimals=1)
    labels = torch.randint(num_classes, (30,), generator=rng)
    batch, moment = Batch(images, labels, torch.arange(30) + 9), Moment(0, 70, 110)
    model, rows = net(num_classes), settings.rows(labels)
    ours = recipe.slots.inner.perturb(
        model, batch, moment, radius=rows.margin, step=rows.step, ball=LINF
    )["robust"]
    model.train()
    outer = Outer({"robust": model(ours)}, labels, rows)
    loss = total(recipe.slots.objective.terms(outer), recipe.slots.reduction or "mean")
    slopes = torch.autograd.grad(loss, list(model.parameters()))
    noise = moment.draws("start").normal(batch.index, (1, 8, 8), torch.float64)
    twin = net(num_classes)  # whose running statistics no forward has moved yet
    theirs, expected = released_at(twin, images, labels, noise, share)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    for one, other in zip(
        slopes, torch.autograd.grad(expected, list(twin.parameters())), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("base", ["trades(steps=2)", "at(steps=2)"])
def test_before_the_warm_up_or_with_no_strength_it_is_the_base(base, tmp_path, tiny):
    plain = weights(quick_train(base, tmp_path / "plain", tiny()))
    for name, options in (("early", "start=3"), ("weak", "strength=0, start=1")):
        run = quick_train(f"{base}+dafa({options})", tmp_path / name, tiny())
        assert same_weights(weights(run), plain)
    late = quick_train(f"{base}+dafa(start=2)", tmp_path / "late", tiny())
    assert not same_weights(weights(late), plain)


def test_a_resumed_run_is_the_straight_one(tmp_path, tiny, monkeypatch):
    text = "trades(steps=2)+dafa(start=0.5)"
    straight_run = quick_train(text, tmp_path / "straight", tiny(), epochs=4)
    for epoch in (2, 3, 4):  # before it fires, while, and after
        out = tmp_path / str(epoch)
        resumed = interrupted_train(text, out, tiny(), monkeypatch, epoch, epochs=4)
        assert files(straight_run) == files(resumed)


def test_bad_company_and_values_are_refused():
    with refused("dafa", "clean"):
        parse_recipe("clean+dafa")
    with refused("ccm", "dafa", "margin"):
        parse_recipe("trades+dafa+ccm")
    with refused("dafa(floor=0)", "greater than 0"):
        parse_recipe("trades+dafa(floor=0)")
    with refused("dafa(strength=-1)", "greater than or equal to 0"):
        parse_recipe("trades+dafa(strength=-1)")
