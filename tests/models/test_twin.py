"""Searches ask a rewritten network: it must be the same function, slopes included."""

import pytest
import torch
from asked import parse_attack
from small_nets import Normalised, built, pictures, plain, seeded, slope
from torch import nn

from classwise.models.twin import Following


def test_the_twin_is_only_used_where_it_is_the_same(net):
    model, images = net(4).eval(), torch.rand(3, 1, 8, 8, dtype=torch.float64)
    twin = Following(model).now(images)
    assert twin is not model
    assert not any(isinstance(part, nn.BatchNorm2d) for part in twin.modules())
    torch.testing.assert_close(twin(images), model(images), rtol=0, atol=1e-12)
    assert not any(parameter.requires_grad for parameter in twin.parameters())
    training = net(4).train()
    assert Following(training).now(images) is training
    hooked = net(4).eval()
    hooked.conv.register_forward_hook(lambda *_: None)
    assert Following(hooked).now(images) is hooked
    watched = net(4).eval()
    watched.conv.register_full_backward_hook(lambda *_: None)
    assert Following(watched).now(images) is watched

    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = net(4)

        def forward(self, x):
            return self.inside(x) if x.sum() > 0 else self.inside(-x)

    branching = Branching().eval()
    assert Following(branching).now(images) is branching

    class Shared(nn.Module):
        """One convolution before two norms: folding one into it would spoil the other."""

        def __init__(self):
            super().__init__()
            self.conv, self.one, self.two = nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.BatchNorm2d(2)
            self.one.running_mean += 1

        def forward(self, x):
            return (self.one(self.conv(x)) + self.two(self.conv(x))).flatten(1)

    shared = Shared().double().eval()
    torch.testing.assert_close(Following(shared).now(images)(images), shared(images))
    assert parse_attack("square").needs_gradient is False


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", ["plain", "cnn", "resnet9(width=2)", "preactresnet18(width=2)"])
def test_answers_and_slopes_are_those_of_the_model(name, layout):
    model = seeded(lambda: Normalised(plain()) if name == "plain" else built(name))
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    images = pictures(6).contiguous(memory_format=layout)
    twin = Following(model).now(images[:4])
    assert twin is not model
    with torch.no_grad():
        torch.testing.assert_close(twin(images), model(images), rtol=0, atol=1e-11)
    torch.testing.assert_close(slope(twin, images), slope(model, images), rtol=0, atol=1e-9)
    for key, value in model.state_dict().items():
        assert torch.equal(value, weights[key])  # the model itself is left alone


def test_relus_in_place_and_scales_in_the_weights():
    twin = Following(seeded(lambda: Normalised(plain()))).now(pictures(4))
    called = [node for node in twin.graph.nodes if node.op == "call_function"]
    assert [node.name for node in called if node.kwargs.get("inplace")] == ["relu", "relu_1"]
    assert not any("div" in node.name for node in called)


def test_relu6_works_in_place_too():
    def made():
        parts = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 4, 3), nn.Flatten()
        return nn.Sequential(*parts).eval()

    model, images = seeded(made).double(), 60 * pictures(4).double()  # some answers are cut at 6
    twin = Following(model).now(images)
    assert sum(bool(node.kwargs.get("inplace")) for node in twin.graph.nodes) == 1
    assert (model[:3](images) == 6).any()
    torch.testing.assert_close(slope(twin, images), slope(model, images), rtol=0, atol=1e-9)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_weights_are_laid_out_as_the_images(layout):
    model = seeded(lambda: built("cnn"))
    twin = Following(model).now(pictures(4).contiguous(memory_format=layout))
    assert twin.features.conv2.weight.is_contiguous(memory_format=layout)
    assert model.features.conv2.weight.is_contiguous()


def test_a_relu_of_what_others_need_is_not_in_place():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.relu = nn.Conv2d(3, 4, 3), nn.ReLU()

        def forward(self, x):
            before = self.conv(x)
            return (self.relu(before) + before).flatten(1) + self.relu(before.exp()).flatten(1)

    model, images = seeded(Twice), pictures(4)
    twin = Following(model).now(images)
    assert not any(node.kwargs.get("inplace") for node in twin.graph.nodes)
    torch.testing.assert_close(slope(twin, images), slope(model, images))


def test_a_model_that_hides_its_gradient_has_no_twin():
    """Tracing does not see `no_grad`: the twin would be easier to attack than the model."""

    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = plain()

        def forward(self, x):
            with torch.no_grad():
                seen = self.inside(x)
            return seen + 0.001 * x.flatten(1)[:, :5]

    model = seeded(Hidden)
    assert Following(model).now(pictures(4)) is model


def test_a_model_with_a_gradient_written_by_hand_has_no_twin():
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            return (x * 4).round() / 4

        @staticmethod
        def backward(_, slope):
            return slope

    class Rounding(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = plain()

        def forward(self, x):
            return self.inside(Straight.apply(x))

    model = seeded(Rounding)
    assert Following(model).now(pictures(4)) is model
