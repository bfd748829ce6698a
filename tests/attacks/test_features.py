"""Feature images beside a straight-line transcription, in float64, image by image."""

import math

import pytest
import torch
from refusals import refused
from torch import nn

from classwise.attacks.features import (
    KINDS,
    FeatureSettings,
    feature_targets,
    towards_class,
    towards_features,
    unrelated,
)
from classwise.models.extra import with_extra_outputs
from classwise.models.penultimate import penultimate
from classwise.types import Batch

CLASSES, WALK = 3, 25  # classes; steps after which some images have come near and left again


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 2, 3, padding=1), nn.Linear(2 * 16, CLASSES)

    def forward(self, x):
        return self.fc(torch.tanh(self.conv(x)).flatten(1))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Tiny().double().eval()


def batch(count=5, first=0):
    random = torch.Generator().manual_seed(1)
    images = torch.rand(20, 1, 4, 4, generator=random, dtype=torch.float64)
    index = torch.arange(first, first + count)
    return Batch(images[index], index % CLASSES, index)


def plain_features(model, image):
    """g(x): all but the last layer, by hand."""
    return torch.tanh(model.conv(image[None])).flatten()


def plain_restored(model, image, start, steps, length):
    """x_r ← clip(x_r − η·∇‖g(x_r) − g(x)‖ / ‖∇‖), one image, one number at a time."""
    wanted, x, seen = plain_features(model, image).detach(), start.clone(), []
    for _ in range(steps):
        x.requires_grad_()
        away = (plain_features(model, x) - wanted).norm()
        seen.append((float(away.detach()), x.detach()))
        (slope,) = torch.autograd.grad(away, x)
        size = math.sqrt(sum(float(value) ** 2 for value in slope.flatten()))
        moved = [
            min(1.0, max(0.0, float(p) - length * float(s) / size))
            for p, s in zip(x.detach().flatten(), slope.flatten(), strict=True)
        ]
        x = torch.tensor(moved, dtype=torch.float64).view_as(image)
    seen.append((float((plain_features(model, x) - wanted).norm().detach()), x))
    return min(seen, key=lambda one: one[0])[1]  # the nearest of all


def plain_last(model, image, start):
    """The image after all steps, near or not."""
    with penultimate(model, CLASSES) as features:
        last, wanted = start[None], features(image[None]).detach()
        for _ in range(WALK):
            x = last.detach().requires_grad_()
            (slope,) = torch.autograd.grad((features(x) - wanted).norm(), x)
            last = (x.detach() - 0.1 * slope / slope.norm()).clamp(0, 1)
    return last[0]


def plain_targeted(model, image, target, steps, length, eps):
    """Towards a class: down its cross-entropy, back into the ball, then into [0, 1]."""
    x = image.clone()
    for _ in range(steps):
        x.requires_grad_()
        logits = model(x[None])[0]
        loss = -torch.log(logits.exp()[target] / logits.exp().sum())
        (slope,) = torch.autograd.grad(loss, x)
        moved = x.detach() - length * slope / slope.square().sum().sqrt()
        offset = moved - image
        size = float(offset.square().sum().sqrt())
        moved = image + offset * min(1.0, eps / size)
        x = moved.clamp(0, 1)
    return x


def test_restored_images_are_those_of_the_transcription(model):
    some, how = batch(), FeatureSettings.of("robust", steps=WALK, step=0.1)
    start = batch(first=9).images
    with penultimate(model, CLASSES) as features:
        found = towards_features(features, some.images, start, how)
    for image, begin, made in zip(some.images, start, found, strict=True):
        assert torch.allclose(made, plain_restored(model, image, begin, WALK, 0.1), atol=1e-9)
    assert any(  # of some images the last is not the nearest
        not torch.allclose(made, plain_last(model, image, begin), atol=1e-9)
        for image, begin, made in zip(some.images, start, found, strict=True)
    )
    left, whole = (
        (torch.tanh(model.conv(x)) - torch.tanh(model.conv(some.images))).flatten(1).norm(dim=1)
        for x in (found, start)
    )
    assert (left < 0.5 * whole).all()


def test_targeted_images_are_those_of_the_transcription(model):
    some, how = batch(), FeatureSettings.of("deterministic", steps=15, eps=0.3)
    targets = feature_targets(how, some, CLASSES)
    assert targets.tolist() == [(label + 1) % CLASSES for label in some.labels.tolist()]
    found = towards_class(model, some, targets, how)
    for image, target, made in zip(some.images, targets.tolist(), found, strict=True):
        expected = plain_targeted(model, image, target, 15, 0.1, 0.3)
        assert torch.allclose(made, expected, atol=1e-9)
    assert ((found - some.images).flatten(1).norm(dim=1) <= 0.3 + 1e-9).all()


@pytest.mark.parametrize("kind", KINDS)
def test_no_image_depends_on_its_batch(model, kind):
    how = FeatureSettings.of(kind, steps=5)

    def made(count, first):
        some = batch(count, first)
        labels = feature_targets(how, some, CLASSES)
        if kind in ("random", "deterministic"):
            return towards_class(model, some, labels, how), labels
        others = unrelated(how, some.index, 20)
        start = torch.cat([batch(1, int(other)).images for other in others])
        with penultimate(model, CLASSES) as features:
            return towards_features(features, some.images, start, how), labels

    whole, labels = made(6, 4)
    for place in range(6):
        alone, label = made(1, 4 + place)
        assert torch.allclose(alone[0], whole[place], atol=1e-9)
        assert label[0] == labels[place]


def test_random_targets_are_any_class_and_starts_any_other_image():
    index = torch.arange(6000)
    many = Batch(torch.zeros(6000, 1, 1, 1), index % CLASSES, index)
    targets = feature_targets(FeatureSettings.of("random"), many, CLASSES)
    for label in range(CLASSES):
        shares = torch.bincount(targets[many.labels == label], minlength=CLASSES) / 2000
        assert torch.allclose(shares, torch.full((CLASSES,), 1 / CLASSES), atol=0.04)
    how = FeatureSettings.of("robust", seed=3)
    others = unrelated(how, index, 6000)
    assert not (others == index).any()
    assert len(torch.unique(others)) > 3500
    assert not torch.equal(others, unrelated(FeatureSettings.of("robust"), index, 6000))
    assert unrelated(how, torch.tensor([0, 1]), 2).tolist() == [1, 0]


def test_settings_that_would_do_nothing_are_refused():
    for options, word in (
        ({"kind": "robust", "eps": 0.5}, "no ball"),
        ({"kind": "sturdy"}, "nonrobust"),
        ({"kind": "random", "steps": 0}, "at least one"),
        ({"kind": "random", "step": 0.0}, "above 0"),
        ({"kind": "random", "eps": -1.0}, "above 0"),
    ):
        with refused(word):
            FeatureSettings.of(**options)
    with refused("another image"):
        unrelated(FeatureSettings.of("robust"), torch.tensor([0]), 1)


class TestPenultimate:
    def test_they_are_what_the_head_is_given_and_the_model_stays_as_it_was(self, model):
        images = batch().images
        with penultimate(model, CLASSES) as features:
            found = features(images)
        assert torch.equal(found, torch.tanh(model.conv(images)).flatten(1))
        assert not model.fc._forward_pre_hooks

    def test_extra_outputs_do_not_hide_the_head(self, model):
        wide = with_extra_outputs(model, None, CLASSES, 4).double()
        with penultimate(wide, CLASSES) as features:
            assert features(batch().images).shape == (5, 32)

    def test_a_head_that_is_asked_twice_is_refused(self):
        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(16, CLASSES)

            def forward(self, x):
                return self.fc(x.flatten(1)) + self.fc(-x.flatten(1))

        with penultimate(Twice(), CLASSES) as features, refused("asked 2 times"):
            features(torch.rand(2, 1, 4, 4))
