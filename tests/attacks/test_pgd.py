"""PGD against a straight loop, and what must hold between attacks."""

import copy

import pytest
import torch
import torch.nn.functional as F
from asked import attacked, parse_attack, perturb
from inner_attacks import STARTS, batch_of, inner, view

from classwise.attacks.ball import LINF
from classwise.attacks.condition import Condition
from classwise.attacks.inner import starting_images
from classwise.attacks.losses import CrossEntropy, Divergence
from classwise.attacks.pgd import pgd
from classwise.attacks.stops import Verdict
from classwise.draws import Draws
from classwise.types import Batch


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
