"""A twin that follows a model in training is the same function at every step."""

import pytest
import torch
from small_nets import Normalised, built, pictures, plain, seeded, slope
from torch import nn

from classwise.models.asking import batchnorm_mode
from classwise.models.twin import Following


def trained_a_step(model, images):
    """Weights and running statistics move, as in training."""
    model.train()
    optimiser = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    model(images).square().mean().backward()
    optimiser.step()
    model.zero_grad()
    return model.eval()


@pytest.mark.parametrize(
    "name", ["plain", "cnn", "resnet9(width=2)", "resnet18(width=2)", "preactresnet18(width=2)"]
)
def test_it_takes_over_weights_and_statistics(name):
    model = seeded(lambda: Normalised(plain()) if name == "plain" else built(name))
    following, images, seen = Following(model), pictures(6), []
    for _ in range(3):
        trained_a_step(model, images)
        twin = following.now(images[:4])
        assert twin is not model
        seen.append(twin)
        with torch.no_grad():
            torch.testing.assert_close(twin(images), model(images), rtol=0, atol=1e-11)
        torch.testing.assert_close(slope(twin, images), slope(model, images), rtol=1e-8, atol=1e-8)
        assert not any(parameter.requires_grad for parameter in twin.parameters())
        assert all(parameter.requires_grad for parameter in model.parameters())
    assert seen[0] is seen[1] is seen[2]  # traced once


def test_statistics_alone_count_too():
    model, images = seeded(lambda: built("resnet9(width=2)")), pictures(6)
    following = Following(model)
    before = following.now(images)(images)
    model.features.stem[1].running_var *= 3
    assert not torch.allclose(following.now(images)(images), before)
    torch.testing.assert_close(following.now(images)(images), model(images))


@pytest.mark.parametrize("bound", [True, False], ids=["called", "made in the code"])
def test_numbers_in_the_code_stay(bound):
    class Coded(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside, self.scale = plain(), torch.tensor(0.5, dtype=torch.float64)

        def forward(self, x):
            by = self.scale if bound else torch.tensor(0.5, dtype=torch.float64)
            return self.inside(x / by)

    model, images = seeded(Coded), pictures(6)
    following = Following(model)
    for _ in range(2):
        trained_a_step(model, images)
        torch.testing.assert_close(following.now(images)(images), model(images))


def test_two_norms_of_one_convolution_are_never_folded():
    """At first both norms do the same, so that no look at answers could tell."""

    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.one, self.two = nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2), nn.BatchNorm2d(2)

        def forward(self, x):
            return (self.one(self.conv(x)) + self.two(self.conv(x) + 1)).flatten(1)

    model, images = seeded(Shared), pictures(6)
    following = Following(model)
    following.now(images)
    trained_a_step(model, images)
    torch.testing.assert_close(following.now(images)(images), model(images))


def test_a_model_that_does_something_else_is_noticed_in_the_next_epoch():
    class Changing(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside, self.sign = plain(), 1

        def forward(self, x):
            return self.sign * self.inside(x)

    model, images = seeded(Changing), pictures(6)
    following = Following(model)
    assert following.now(images, 0) is not model
    model.sign = -2
    assert following.now(images, 1) is model
    assert following.now(images, 1) is model
    model.sign = 1
    assert following.now(images, 2) is not model  # what was found before does not count


def test_whoever_has_no_twin_is_asked_himself():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = plain()

        def forward(self, x):
            return self.inside(x) if x.sum() > 0 else self.inside(-x)

    model, images = seeded(Branching), pictures(6)
    following = Following(model)
    assert following.now(images, 0) is model
    assert following.now(images, 0) is model
    hooked = seeded(plain)
    hooked[0].register_forward_hook(lambda *_: None)
    assert Following(hooked).now(images) is hooked


def test_a_model_spread_over_devices_answers_the_same():
    model, images = nn.DataParallel(seeded(lambda: built("resnet9(width=2)"))), pictures(6)
    following = Following(model)
    with batchnorm_mode(model, "eval"):
        for _ in range(2):
            trained_a_step(model, images)
            torch.testing.assert_close(following.now(images)(images), model(images))
