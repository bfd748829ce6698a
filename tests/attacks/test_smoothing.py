"""Both bounds of a smoothed classifier, on models whose smoothed selves are known."""

import math

import numpy as np
import pytest
import torch
from conditions import Row
from half_spaces import HalfSpace, at_distances, judged
from scipy import stats
from torch import nn

from classwise.attacks import noise
from classwise.attacks.names import parse_condition
from classwise.attacks.noise import MeanAnswer, noisy_counts
from classwise.attacks.threat import Threat
from classwise.data.view import View
from classwise.draws import Draws
from classwise.errors import ClasswiseError
from classwise.models.subject import Subject
from classwise.record.rows import certified_at
from classwise.types import Batch

ALPHA = 0.1  # large, so that what it allows is seen


COUNT = 600
PROOF = f"smoothing(sigma=0.25,n=150,n0=30,alpha={ALPHA})"


@pytest.fixture(scope="module")
def found():
    model, distances = HalfSpace(), np.linspace(0.01, 0.35, COUNT)
    images, labels = at_distances(model, distances), torch.ones(COUNT, dtype=torch.int64)
    return distances, judged(model, images, labels, PROOF, 0.1)


class TestCertificates:
    """On a half-space: P(class 1) = Φ(distance / σ), and the true radius is the distance."""

    def test_a_radius_exceeds_the_true_one_no_more_often_than_alpha(self, found):
        distances, rows = found
        too_long = int((rows.certified_radius > distances).sum())
        assert stats.binom.sf(too_long - 1, COUNT, ALPHA) > 1e-3
        # but nearly as often: noise of another size, or the same for all, would show here
        assert stats.binom.sf(too_long - 1, COUNT, ALPHA / 3) < 1e-3

    def test_radii_are_those_of_the_known_probability(self, found):
        distances, rows = found
        p = stats.norm.cdf(distances / 0.25)
        middle = stats.binom.ppf(0.5, 150, p)
        low = stats.beta.ppf(ALPHA, middle, 151 - middle)
        wanted = np.where(low > 0.5, 0.25 * stats.norm.ppf(low), 0)
        assert abs(np.mean(rows.certified_radius - wanted)) < 0.005

    def test_verdicts_follow_from_the_radius(self, found):
        _, rows = found
        assert (rows.correct == (rows.certified_radius >= 0.1)).all()
        silent = (rows.predicted == 2) & (rows.certified_radius == 0)
        short = (rows.predicted == 2) & (rows.certified_radius > 0)
        assert silent.any()
        assert short.any()
        assert (rows.certified_radius[short] < 0.1).all()
        assert (rows.sigma, rows.alpha, rows.kind) == (0.25, ALPHA, "certificate")

    def test_another_class_that_is_certain_is_named(self):
        model = HalfSpace()
        images = at_distances(model, [-0.5, -0.5, 0.5])
        rows = judged(model, images, torch.tensor([1, 0, 1]), "smoothing(n=100)", 0.1)
        assert rows.predicted.tolist() == [0, 0, 1]
        assert rows.certified_radius[0] == 0 < rows.certified_radius[1]

    def test_at_another_radius_they_are_those_of_an_audit_there(self, found):
        _, rows = found
        model = HalfSpace()
        images = at_distances(model, np.linspace(0.01, 0.35, COUNT))
        again = judged(model, images, torch.ones(COUNT, dtype=torch.int64), PROOF, 0.2)
        derived = certified_at(rows, 0.2, again.condition, 2)
        for column in ("predicted", "radius", "broken_by", "certified_radius", "correct"):
            assert (getattr(derived, column) == getattr(again, column)).all(), column
        assert again.correct.sum() < rows.correct.sum()

    def test_what_certifies_nothing_is_refused(self):
        rows = judged(HalfSpace(), torch.rand(2, 1, 6, 6), torch.tensor([0, 1]), "clean", 0.1)
        with pytest.raises(ClasswiseError, match="clean certifies nothing; only smoothing does"):
            certified_at(rows, 0.2, "clean", 2)


class TestAttack:
    """On a half-space the best that a perturbation of size r does is to come nearer by r."""

    ATTACK = f"smoothed-pgd-8(sigma=0.25,n=150,m=4,alpha={ALPHA})"

    def test_what_cannot_fall_falls_no_more_often_than_alpha(self):
        model, count = HalfSpace(), 400
        images = at_distances(model, np.full(count, 0.2))  # the attack ends on the plane itself
        rows = judged(model, images, torch.ones(count, dtype=torch.int64), self.ATTACK, 0.2)
        fell = int((~rows.correct).sum())
        assert stats.binom.sf(fell - 1, count, ALPHA / 2) > 1e-3  # the other half is class 1
        assert fell > 0

    def test_what_lies_well_inside_the_radius_falls(self):
        model = HalfSpace()
        images = at_distances(model, np.full(50, 0.05))
        rows = judged(model, images, torch.ones(50, dtype=torch.int64), self.ATTACK, 0.3)
        assert not rows.correct.any()
        assert (rows.predicted == 0).all()

    def test_who_abstains_stands(self):
        model = HalfSpace()
        images = at_distances(model, np.full(30, -0.01))  # smoothed, it is wrong, but hardly so
        sure = "smoothed-pgd-1(sigma=0.25,n=150,m=1,alpha=0.000001)"
        rows = judged(model, images, torch.ones(30, dtype=torch.int64), sure, 0.001)
        assert rows.correct.all()

    def test_images_stay_in_the_ball_and_in_the_picture(self):
        model = HalfSpace()
        images = at_distances(model, np.linspace(0.1, 2.4, 20)).clamp(0, 1)
        data = View.given(images, torch.ones(20, dtype=torch.int64), 2, ("a", "b"))
        condition = parse_condition(self.ATTACK, Threat.of(0.7, "L2"))
        batch = data.batch(np.arange(20))
        moved = condition.judge(Subject(model, 2, 64), batch).images
        way = (moved - batch.images.double()).flatten(1).norm(dim=1)
        assert (way <= 0.7 + 1e-9).all()
        assert (way > 0.3).all()
        assert ((moved >= 0) & (moved <= 1)).all()


def test_the_mean_answer_is_the_log_of_the_mean_probability():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).double()
    images, index = torch.rand(4, 1, 4, 4).double().requires_grad_(), torch.tensor([7, 1, 9, 4])
    mean = MeanAnswer(model, index, 0.3, 5, Draws(3, "t"))
    labels = torch.tensor([0, 2, 1, 1])
    asked = mean(images)
    loss = nn.functional.cross_entropy(asked, labels, reduction="none")
    (slope,) = torch.autograd.grad(loss.sum(), images)
    plain = images.detach().clone().requires_grad_()
    for row, number in enumerate(index.tolist()):
        total = 0
        for draw in range(5):
            z = Draws(3, "t").noise(torch.tensor([number + (draw << 32)]), (1, 4, 4)).double()
            total = total + model(plain[row : row + 1] + 0.3 * z).softmax(1)[0, labels[row]]
        straight = -torch.log(total / 5)
        assert math.isclose(straight.item(), loss[row].item(), rel_tol=1e-12)
        (part,) = torch.autograd.grad(straight, plain)
        assert torch.allclose(part[row], slope[row], rtol=1e-10)
    assert not torch.allclose(mean(images), asked)  # other draws at the next step


def test_noise_is_a_function_of_seed_sample_and_draw():
    seen = []

    def model(images):
        seen.append(images)
        return images.flatten(1)[:, :2]

    subject, index = Subject(model, 2, 7), torch.tensor([4, 0, 9])
    batch = Batch(torch.zeros(3, 1, 2, 2), torch.zeros(3, dtype=torch.int64), index)
    subject.take(batch.images)
    seen.clear()
    counts = noisy_counts(subject, batch, 2.0, 5, Draws(0, "t"))
    assert counts.sum(1).tolist() == [5, 5, 5]
    images = torch.cat(seen).view(3, 5, 4)
    for row, number in enumerate(index.tolist()):
        for draw in range(5):
            z = Draws(0, "t").noise(torch.tensor([number + (draw << 32)]), (4,))
            assert torch.equal(images[row, draw], 2 * z[0])
    assert len(images.view(15, 4).unique(dim=0)) == 15
    assert (images < 0).any()  # noise is not clipped


def test_every_part_has_draws_of_its_own(monkeypatch):
    """A class is not chosen on the answers that bound its share; a fall is confirmed afresh."""
    purposes = []

    def silence(self, index, shape):
        purposes.append((self.purpose, self.seed))
        return torch.zeros(len(index), *shape)

    monkeypatch.setattr(noise.Draws, "noise", silence)
    images, labels = torch.rand(2, 1, 6, 6).double(), torch.tensor([0, 1])
    judged(HalfSpace(), images, labels, "smoothing(n=10)", 0.0, seed=4)
    judged(HalfSpace(), images, labels, "smoothed-pgd-2(n=10,m=2)", 0.1, seed=4)
    names = ("selection", "estimation", "attack", "confirmation")
    assert list(dict.fromkeys(purposes)) == [(f"smoothing {name}", 4) for name in names]


@pytest.mark.parametrize("radius", [0.1, 0.25])
@pytest.mark.parametrize("sigma", [0.15, 0.3])
@pytest.mark.parametrize("num_classes", [2, 4, 30])
def test_certified_and_broken_is_no_more_frequent_than_chance_allows(radius, sigma, num_classes):
    """Of an image certified at a radius and broken inside it, one verdict is wrong: α + α at most.

    Hence no class has more certified than standing images more often than that.
    """
    proof = Row(f"smoothing(sigma={sigma},n=60,n0=20,alpha={ALPHA},eps={radius})", only_l2=True)
    attack = Row(f"smoothed-pgd-5(sigma={sigma},n=60,m=4,alpha={ALPHA},eps={radius})", only_l2=True)
    scene = proof.scene(num_classes=num_classes)
    certified, standing = (scene.found(row, 512).correct for row in (proof, attack))
    broken = int((certified & ~standing).sum())
    assert stats.binom.sf(broken - 1, len(certified), 2 * ALPHA) > 1e-3
    if (num_classes, sigma) == (4, 0.15):
        assert certified.any()
        assert not standing.all()
