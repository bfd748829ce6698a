import copy

import pytest
import torch
import torch.nn.functional as F
from asked import attacked, parse_attack, perturb
from cases import CASES
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from classwise.attacks.ball import LINF
from classwise.attacks.condition import Condition
from classwise.attacks.inner import InnerAttack, Moment, starting_images
from classwise.attacks.losses import CrossEntropy, Divergence
from classwise.attacks.pgd import pgd
from classwise.attacks.stops import Verdict
from classwise.draws import Draws
from classwise.models.asking import batchnorm_mode
from classwise.types import Batch

ATTACKING = [case for case in CASES if case.recipe.attacks]
STARTS = ["none", "uniform", "gaussian"]


def batch_of(count=6, num_classes=4, channels=1, seed=0, size=8):
    rng = torch.Generator().manual_seed(seed)
    images = torch.rand(count, channels, size, size, generator=rng, dtype=torch.float64)
    images = (images * 1.4 - 0.2).clamp(0, 1)  # with pixels at both ends
    labels = torch.randint(num_classes, (count,), generator=rng)
    return Batch(images, labels, torch.arange(count) + 100)


def inner(start="uniform", steps=3, batchnorm="eval", reference="label"):
    return InnerAttack(reference=reference, start=start, steps=steps, batchnorm=batchnorm)


def view(attack, model, batch, radius, step, target_odds=None):
    facts = {"radius": radius, "step": step, "ball": LINF, "target_odds": target_odds}
    if attack.reference == "teacher":
        facts["teacher"] = 1 - model(batch.images).detach()
    return attack.perturb(model, batch, Moment(seed=0, epoch=1, epochs=10), **facts)["robust"]


def assert_inside(found, batch, radius):
    assert found.shape == batch.images.shape
    assert torch.isfinite(found).all()
    assert found.min() >= 0
    assert found.max() <= 1
    assert ((found - batch.images).abs().flatten(1).amax(1) <= radius + 1e-12).all()


torch.manual_seed(0)
FLAT = nn.Sequential(nn.Flatten(), nn.Linear(64, 4)).double()


class TestStaysInside:
    @settings(max_examples=60)
    @given(
        radii=st.lists(st.sampled_from([0.0, 1e-9, 0.03, 0.2, 0.9]), min_size=1, max_size=5),
        steps=st.integers(0, 3),
        scale=st.sampled_from([0.0, 0.25, 1.0, 7.0]),
        start=st.sampled_from(STARTS),
        reference=st.sampled_from(["label", "clean"]),
        targeted=st.booleans(),
    )
    def test_each_samples_own_ball_and_the_image_range(
        self, radii, steps, scale, start, reference, targeted
    ):
        radius = torch.tensor(radii, dtype=torch.float64)
        batch = batch_of(len(radii))
        model = FLAT
        odds = torch.ones(len(radii), 4, dtype=torch.float64) if targeted else None
        attack = inner(start, steps, reference=reference)
        assert_inside(view(attack, model, batch, radius, radius * scale, odds), batch, radius)

    @pytest.mark.parametrize("case", ATTACKING, ids=str)
    @pytest.mark.parametrize("num_classes", [2, 3, 100])
    def test_the_attack_of_every_method_moves_the_images(self, case, num_classes, net):
        batch = batch_of(9, num_classes)
        radius = torch.tensor([0, 0.01, 0.3], dtype=torch.float64).repeat(3)
        step = torch.full_like(radius, 0.05)
        found = view(case.recipe.slots.inner, net(num_classes), batch, radius, step)
        assert not torch.equal(found[radius > 0], batch.images[radius > 0])

    def test_zero_steps_from_the_image_return_the_image(self, net):
        batch, some = batch_of(), torch.full((6,), 0.1, dtype=torch.float64)
        assert torch.equal(view(inner("none", 0), net(), batch, some, some), batch.images)

    def test_a_step_longer_than_the_radius_ends_on_the_sphere(self, net):
        batch, radius = batch_of(), torch.full((6,), 0.1, dtype=torch.float64)
        found = view(inner("none", 1), net(), batch, radius, 5 * radius)
        free = (batch.images > 0.1) & (batch.images < 0.9)
        moved = (found - batch.images).abs()[free]
        assert torch.allclose(moved[moved > 0], torch.tensor(0.1).double())


class Broken(nn.Module):
    """Raises at the given forward."""

    def __init__(self, inside, at):
        super().__init__()
        self.inside, self.left = inside, at

    def forward(self, x):
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("out of memory")
        return self.inside(x)


def snapshot(model):
    return {
        "modes": [part.training for part in model.modules()],
        "tracking": [getattr(part, "track_running_stats", None) for part in model.modules()],
        "needs grad": [p.requires_grad for p in model.parameters()],
        "grads": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "state": {name: value.clone() for name, value in model.state_dict().items()},
    }


def assert_untouched(model, before, but=()):
    after = snapshot(model)
    for what in ("modes", "tracking", "needs grad"):
        assert after[what] == before[what]
    for old, new in zip(before["grads"], after["grads"], strict=True):
        assert (old is None and new is None) or torch.equal(old, new)
    for name, value in after["state"].items():
        if name not in but:
            assert torch.equal(value, before["state"][name]), name


@pytest.mark.usefixtures("untouched_random_state")
class TestLeavesTheModelAlone:
    some = torch.full((6,), 0.1, dtype=torch.float64)

    def prepared(self, net, grads, frozen, training):
        model = net()
        if grads:
            model(torch.ones(2, 1, 8, 8).double()).sum().backward()
        model.conv.weight.requires_grad_(not frozen)
        model.train(training)
        model.head.eval()  # a mixture of modes must come back as it was
        return model

    @pytest.mark.parametrize("mode", ["eval", "batch"])
    @pytest.mark.parametrize("reference", ["label", "clean"])
    @pytest.mark.parametrize("grads", [True, False], ids=["grads", "no grads"])
    @pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "not frozen"])
    @pytest.mark.parametrize("training", [True, False], ids=["training", "evaluating"])
    def test_mode_grads_and_buffers(self, net, mode, reference, grads, frozen, training):
        model = self.prepared(net, grads, frozen, training)
        before, batch = snapshot(model), batch_of()
        images = batch.images.clone()
        view(inner(batchnorm=mode, reference=reference), model, batch, self.some, self.some)
        assert_untouched(model, before)
        assert torch.equal(batch.images, images)
        assert not batch.images.requires_grad

    @pytest.mark.parametrize("grads", [True, False], ids=["grads", "no grads"])
    def test_train_mode_moves_the_running_statistics_and_nothing_else(self, net, grads):
        model = self.prepared(net, grads, False, False)
        before = snapshot(model)
        view(inner(batchnorm="train", steps=3), model, batch_of(), self.some, self.some)
        moved = {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
        assert_untouched(model, before, but=moved)
        after = model.state_dict()
        assert (
            int(after["norm.num_batches_tracked"])
            - int(before["state"]["norm.num_batches_tracked"])
            == 3
        )
        assert not torch.equal(after["norm.running_mean"], before["state"]["norm.running_mean"])

    @pytest.mark.parametrize("mode", ["eval", "batch", "train"])
    @pytest.mark.parametrize("at", [0, 2])
    def test_also_when_the_model_raises(self, net, mode, at):
        model = Broken(self.prepared(net, True, True, True), at)
        before = snapshot(model)
        with pytest.raises(RuntimeError, match="out of memory"):
            view(inner(batchnorm=mode), model, batch_of(), self.some, self.some)
        statistics = {f"inside.norm.{n}" for n in ("running_mean", "running_var")}
        counter = {"inside.norm.num_batches_tracked"}
        assert_untouched(model, before, but=(statistics | counter) if mode == "train" else ())

    def test_within_no_grad_it_still_climbs(self, net):
        batch = batch_of()
        outside = view(inner(), net(), batch, self.some, self.some)
        with torch.no_grad():
            within = view(inner(), net(), batch, self.some, self.some)
            assert not torch.is_grad_enabled()
        assert torch.equal(within, outside)

    def test_only_the_inputs_gradient_is_computed(self, net):
        model, asked = net(), []
        model.conv.weight.register_hook(asked.append)
        view(inner(), model, batch_of(), self.some, self.some)
        assert asked == []
        model(batch_of().images).sum().backward()
        assert len(asked) == 1  # the hook does work

    def test_images_that_need_a_gradient_keep_theirs(self, net):
        batch = batch_of()
        batch.images.requires_grad_()
        found = view(inner(), net(), batch, self.some, self.some)
        assert batch.images.requires_grad
        assert batch.images.grad is None
        assert not found.requires_grad


class TestBatchNormModes:
    def forward(self, model, mode, images):
        with batchnorm_mode(model, mode):
            return model(images)

    def by_hand(self, model, images, mean, variance):
        x = model.conv(images)
        x = (x - mean.view(1, -1, 1, 1)) / (variance.view(1, -1, 1, 1) + model.norm.eps).sqrt()
        x = x * model.norm.weight.view(1, -1, 1, 1) + model.norm.bias.view(1, -1, 1, 1)
        return model.head(F.adaptive_avg_pool2d(torch.tanh(x), 4).flatten(1))

    @pytest.mark.parametrize("training", [True, False])
    @pytest.mark.parametrize("mode", ["batch", "train"])
    def test_batch_and_train_use_batch_statistics(self, net, mode, training):
        model, images = net().train(training), batch_of().images
        x = model.conv(images)
        expected = self.by_hand(model, images, x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0))
        torch.testing.assert_close(self.forward(model, mode, images), expected)

    @pytest.mark.parametrize("training", [True, False])
    def test_eval_uses_running_statistics(self, net, training):
        model, images = net().train(training), batch_of().images
        norm = model.norm
        expected = self.by_hand(model, images, norm.running_mean, norm.running_var)
        torch.testing.assert_close(self.forward(model, "eval", images), expected)


def straight_pgd(x0, x, gradient, radius, step, steps):
    """One sample, one pixel at a time: move by the sign, clip to the ball, clip to [0, 1]."""
    current = x0.clone()
    for _ in range(steps):
        slope = gradient(current)
        moved = current.clone()
        for place in torch.cartesian_prod(*(torch.arange(n) for n in x.shape)).tolist():
            at = tuple(place)
            sign = (slope[at] > 0).item() - (slope[at] < 0).item()
            pixel = current[at].item() + step * sign
            pixel = min(max(pixel, x[at].item() - radius), x[at].item() + radius)
            moved[at] = min(max(pixel, 0.0), 1.0)
        current = moved
    return current


class TestGolden:
    radius = torch.tensor([0.0, 0.02, 0.1, 0.3], dtype=torch.float64)
    step = torch.tensor([0.1, 0.007, 0.04, 0.02], dtype=torch.float64)

    def golden(self, model, batch, start, height, steps):
        rows = []
        for b in range(len(batch)):

            def gradient(x, b=b):
                x = x.clone()[None].requires_grad_()
                return torch.autograd.grad(height(model(x)[0], b), x)[0][0]

            radius, step = self.radius[b].item(), self.step[b].item()
            args = (start[b], batch.images[b], gradient, radius, step, steps)
            rows.append(straight_pgd(*args))
        return torch.stack(rows)

    @pytest.mark.parametrize("steps", [1, 4])
    @pytest.mark.parametrize(
        ("reference", "start"),
        # not (clean, none): at the clean image KL has no slope, only rounding
        [*(("label", start) for start in STARTS), ("clean", "uniform"), ("clean", "gaussian")],
    )
    def test_pgd_equals_a_straight_loop(self, net, steps, start, reference):
        model, batch = net().eval(), batch_of(4, size=5)
        draws = Draws(0, "start", 1)
        begin = starting_images(start, batch, self.radius, LINF, draws)
        begin = batch.images if begin is None else begin

        def cross_entropy(z, b):
            return -z[batch.labels[b]] + torch.log(sum(torch.exp(z[j]) for j in range(4)))

        def divergence(z, b):
            with torch.no_grad():
                q = torch.exp(model(batch.images[b : b + 1])[0])
                q = q / q.sum()
            p = torch.exp(z) / torch.exp(z).sum()
            return sum(q[j] * torch.log(q[j] / p[j]) for j in range(4))

        height = cross_entropy if reference == "label" else divergence
        found = view(inner(start, steps, reference=reference), model, batch, self.radius, self.step)
        expected = self.golden(model, batch, begin, height, steps)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)

    def test_a_uniform_start_fills_each_samples_own_ball(self):
        batch = Batch(torch.full((4, 1, 40, 40), 0.5).double(), torch.zeros(4), torch.arange(4))
        begin = starting_images("uniform", batch, self.radius, LINF, Draws(0, "start"))
        reach = (begin - 0.5).abs().flatten(1).amax(1)
        assert (reach <= self.radius + 1e-12).all()
        assert (reach >= 0.99 * self.radius).all()

    def test_a_gaussian_start_is_near_the_image_whatever_the_radius(self):
        batch = Batch(torch.full((4, 1, 40, 40), 0.5).double(), torch.zeros(4), torch.arange(4))
        begin = starting_images("gaussian", batch, self.radius, LINF, Draws(0, "start"))
        deviation = (begin - 0.5).flatten(1).std(1)
        assert ((deviation - 0.001).abs() < 1e-4).all()


class TestRelations:
    def test_fgsm_is_one_step_of_the_whole_radius(self, net):
        model, batch = net().eval(), batch_of()
        found = perturb("fgsm", model, batch, eps=0.1, ball=LINF, seed=0)
        x = batch.images.clone().requires_grad_()
        (slope,) = torch.autograd.grad(F.cross_entropy(model(x), batch.labels), x)
        expected = (batch.images + 0.1 * slope.sign()).clamp(0, 1)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        one = parse_attack("pgd-1(step=0.1, start=none)")
        assert torch.equal(perturb(one, model, batch, eps=0.1, ball=LINF, seed=0), found)

    def test_clean_is_the_images(self, net):
        batch = batch_of()
        found = attacked(net(), batch, Condition(), num_classes=4, radius=0.1, ball=LINF)
        assert torch.equal(found.images, batch.images)

    def test_a_quarter_of_the_radius_is_the_usual_step(self, net):
        model, batch = net().eval(), batch_of()
        usual, said = (
            perturb(text, model, batch, eps=0.1, ball=LINF, seed=0)
            for text in ("pgd-3(start=none)", "pgd-3(start=none, step=0.025)")
        )
        assert torch.equal(usual, said)

    @pytest.mark.parametrize("start", STARTS)
    def test_with_two_classes_targeted_equals_untargeted(self, net, start):
        model, batch = net(2), batch_of(num_classes=2)
        radius = torch.linspace(0.01, 0.2, 6, dtype=torch.float64)
        odds = torch.full((6, 2), 0.5, dtype=torch.float64)
        attack = inner(start, 5)
        targeted = view(attack, model, batch, radius, radius / 4, odds)
        untargeted = view(attack, model, batch, radius, radius / 4)
        torch.testing.assert_close(targeted, untargeted, rtol=0, atol=1e-12)

    def test_a_targeted_attack_nears_its_target(self, net):
        model, batch = net().eval(), batch_of(20)
        target = (batch.labels + 1) % 4
        radius = torch.full((20,), 0.2, dtype=torch.float64)
        loss = CrossEntropy(target, targeted=True)
        found = pgd(model, batch.images, loss, radius=radius, step=radius / 4, steps=10)
        with torch.no_grad():
            before = F.cross_entropy(model(batch.images), target)
            assert F.cross_entropy(model(found), target) < before - 0.03

    @pytest.mark.parametrize("reference", ["label", "clean"])
    def test_attacking_raises_what_it_climbs(self, net, reference):
        model, batch = net().eval(), batch_of(20)
        radius = torch.full((20,), 0.2, dtype=torch.float64)
        found = view(inner(steps=10, reference=reference), model, batch, radius, radius / 4)
        with torch.no_grad():
            clean = model(batch.images)
            loss = CrossEntropy(batch.labels) if reference == "label" else Divergence(clean)
            assert loss(model(found)).mean() > loss(clean).mean() + 0.001

    def test_a_stop_rule_holds_its_samples_where_they_are(self, net):
        model, batch = net().eval(), batch_of()
        some = torch.full((6,), 0.1, dtype=torch.float64)
        moving = torch.tensor([True, False] * 3)
        loss = CrossEntropy(batch.labels)
        facts = {"radius": some, "step": some / 4, "steps": 3}
        free = pgd(model, batch.images, loss, **facts)
        held = pgd(model, batch.images, loss, **facts, stop=lambda _: Verdict(moving))
        assert torch.equal(held[moving], free[moving])
        assert torch.equal(held[~moving], batch.images[~moving])

    def test_a_batch_of_one_is_attacked_as_in_a_larger_batch(self, net):
        model, batch = net().eval(), batch_of()
        some = torch.full((6,), 0.1, dtype=torch.float64)
        whole = view(inner(), model, batch, some, some / 4)
        one = Batch(batch.images[4:5], batch.labels[4:5], batch.index[4:5])
        torch.testing.assert_close(
            view(inner(), model, one, some[:1], some[:1] / 4), whole[4:5], rtol=0, atol=1e-12
        )

    def test_attacking_a_copy_gives_the_same_images(self, net):
        model, batch = net(), batch_of()
        some = torch.full((6,), 0.1, dtype=torch.float64)
        attack = inner(batchnorm="train")
        twin = copy.deepcopy(model)
        assert torch.equal(
            view(attack, model, batch, some, some), view(attack, twin, batch, some, some)
        )
