"""Searches ask a rewritten network: it must be the same function, slope by slope."""

import os
import sys

import pytest
import torch
from asked import attacked, parse_attack
from torch import nn

from classwise.attacks.ball import LINF
from classwise.attacks.quick.patches import Patches
from classwise.attacks.search import suite
from classwise.memory import keep_freed_memory
from classwise.models import build_model
from classwise.models.twin import quick_twin
from classwise.types import Batch


def seeded(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().double().eval()


def built(name):
    facts = {"num_classes": 5, "channels": 3, "mean": (0.4, 0.5, 0.6), "deviation": (0.2, 0.3, 0.5)}
    return build_model(name, **facts)


def pictures(count, channels=3, height=16, width=16):
    rng = torch.Generator().manual_seed(1)
    return torch.rand(count, channels, height, width, generator=rng, dtype=torch.float64)


class Normalised(nn.Module):
    """(x − μ)/σ before a network, as many people write it."""

    def __init__(self, inside):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.2, 0.3, 0.5]).view(1, 3, 1, 1))
        self.inside = inside

    def forward(self, x):
        return self.inside((x - self.mean) / self.std)


def plain():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, stride=2, padding=1),
        nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(192, 5),
    )  # fmt: skip


def slope(model, images):
    images = images.clone().requires_grad_()
    return torch.autograd.grad(model(images).square().sum(), images)[0]


def test_the_twin_is_only_used_where_it_is_the_same(net):
    model, images = net(4).eval(), torch.rand(3, 1, 8, 8, dtype=torch.float64)
    twin = quick_twin(model, images)
    assert twin is not model
    assert not any(isinstance(part, nn.BatchNorm2d) for part in twin.modules())
    torch.testing.assert_close(twin(images), model(images), rtol=0, atol=1e-12)
    assert not any(parameter.requires_grad for parameter in twin.parameters())
    training = net(4).train()
    assert quick_twin(training, images) is training
    hooked = net(4).eval()
    hooked.conv.register_forward_hook(lambda *_: None)
    assert quick_twin(hooked, images) is hooked
    watched = net(4).eval()
    watched.conv.register_full_backward_hook(lambda *_: None)
    assert quick_twin(watched, images) is watched

    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = net(4)

        def forward(self, x):
            return self.inside(x) if x.sum() > 0 else self.inside(-x)

    branching = Branching().eval()
    assert quick_twin(branching, images) is branching

    class Shared(nn.Module):
        """One convolution before two norms: folding one into it would spoil the other."""

        def __init__(self):
            super().__init__()
            self.conv, self.one, self.two = nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.BatchNorm2d(2)
            self.one.running_mean += 1

        def forward(self, x):
            return (self.one(self.conv(x)) + self.two(self.conv(x))).flatten(1)

    shared = Shared().double().eval()
    assert quick_twin(shared, images) is shared
    assert parse_attack("square").needs_gradient is False


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", ["plain", "cnn", "resnet9(width=2)", "preactresnet18(width=2)"])
def test_answers_and_slopes_are_those_of_the_model(name, layout):
    model = seeded(lambda: Normalised(plain()) if name == "plain" else built(name))
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    images = pictures(6).contiguous(memory_format=layout)
    twin = quick_twin(model, images[:4])
    assert twin is not model
    with torch.no_grad():
        torch.testing.assert_close(twin(images), model(images), rtol=0, atol=1e-11)
    torch.testing.assert_close(slope(twin, images), slope(model, images), rtol=0, atol=1e-9)
    for key, value in model.state_dict().items():
        assert torch.equal(value, weights[key])  # the model itself is left alone


def test_relus_in_place_and_scales_in_the_weights():
    twin = quick_twin(seeded(lambda: Normalised(plain())), pictures(4))
    called = [node for node in twin.graph.nodes if node.op == "call_function"]
    assert [node.name for node in called if node.kwargs.get("inplace")] == ["relu", "relu_1"]
    assert not any("div" in node.name for node in called)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_weights_are_laid_out_as_the_images(layout):
    model = seeded(lambda: built("cnn"))
    twin = quick_twin(model, pictures(4).contiguous(memory_format=layout))
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
    twin = quick_twin(model, images)
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
    assert quick_twin(model, pictures(4)) is model


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
    assert quick_twin(model, pictures(4)) is model


SLIDING = {
    "strides": lambda: plain(),
    "pooling": lambda: nn.Sequential(
        nn.Conv2d(3, 6, 5, padding=2), nn.BatchNorm2d(6), nn.ELU(), nn.MaxPool2d(2, ceil_mode=True),
        nn.Conv2d(6, 4, 3), nn.AvgPool2d(2), nn.Flatten(), nn.LazyLinear(5),
    ),
    "holes and groups": lambda: nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=2, dilation=2, groups=3), nn.ReLU(),
        nn.Conv2d(6, 6, 1, stride=2), nn.Flatten(), nn.LazyLinear(5),
    ),
}  # fmt: skip


class TestPatches:
    @pytest.fixture(params=SLIDING)
    def network(self, request):
        def make():
            model = Normalised(SLIDING[request.param]())
            model.float()(pictures(1, height=20, width=17).float())
            return model

        return quick_twin(seeded(make), pictures(4, height=20, width=17))

    def windows(self, images, owner, size):
        """Known images with a window changed, every corner among the places."""
        rng = torch.Generator().manual_seed(size)
        high, wide = (extent - size for extent in images.shape[2:])
        top = torch.randint(high + 1, (len(owner),), generator=rng)
        left = torch.randint(wide + 1, (len(owner),), generator=rng)
        top[:4], left[:4] = torch.tensor([0, 0, high, high]), torch.tensor([0, wide, 0, wide])
        changed = images[owner].clone()
        for number, (y, x) in enumerate(zip(top, left, strict=True)):
            place = (number, slice(None), slice(y, y + size), slice(x, x + size))
            changed[place] = torch.rand(3, size, size, generator=rng, dtype=torch.float64)
        return changed, top, left

    @pytest.mark.parametrize("size", [1, 2, 3, 5])
    def test_the_networks_own_answers(self, network, size, monkeypatch):
        monkeypatch.setattr("classwise.attacks.quick.reach._WORTH", 1.0)
        images = pictures(5, height=20, width=17)
        patches, keys = Patches(network, images), torch.arange(5)
        owner = torch.arange(5).repeat_interleave(6)
        assert patches.remember(size, keys, images)
        assert len(patches.plan.near) > 3
        for _ in range(3):
            changed, top, left = self.windows(images, owner, size)
            found = patches.ask(owner, changed, top, left, size)
            with torch.no_grad():
                torch.testing.assert_close(found, network(changed), rtol=0, atol=1e-11)
            rows, asked = torch.tensor([1, 4]), torch.tensor([8, 26])
            images[rows] = changed[asked]
            patches.learn(rows, asked)
            assert patches.remember(size, keys, images)

    def test_others_are_looked_at_afresh(self, network, monkeypatch):
        monkeypatch.setattr("classwise.attacks.quick.reach._WORTH", 1.0)
        images = pictures(8, height=20, width=17)
        patches, owner = Patches(network, images), torch.arange(4)
        patches.remember(2, owner, images[:4])
        patches.remember(2, owner + 4, images[4:])
        changed, top, left = self.windows(images[4:], owner, 2)
        found = patches.ask(owner, changed, top, left, 2)
        with torch.no_grad():
            torch.testing.assert_close(found, network(changed), rtol=0, atol=1e-11)

    def test_not_worth_it_for_large_windows_or_without_convolutions(self, network):
        images = pictures(4, height=20, width=17)
        patches = Patches(network, images)
        assert not patches.remember(15, torch.arange(4), images)
        flat = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(3 * 20 * 17, 5)))
        patches = Patches(quick_twin(flat, images), images)
        assert not patches.remember(1, torch.arange(4), images)
        patches.learn(torch.tensor([0]), torch.tensor([0]))  # nothing is known: nothing to learn

    def test_options_of_the_model_are_no_images(self):
        class Optional(nn.Module):
            def __init__(self):
                super().__init__()
                self.inside = plain()

            def forward(self, x, scale=2.0):
                return self.inside(x) * scale

        model, images = seeded(Optional), pictures(4)
        twin = quick_twin(model, images)
        patches, owner = Patches(twin, images), torch.arange(4)
        assert twin is not model
        assert patches.remember(2, owner, images)
        changed, top, left = self.windows(images, owner, 2)
        with torch.no_grad():
            torch.testing.assert_close(
                patches.ask(owner, changed, top, left, 2), model(changed), rtol=0, atol=1e-11
            )

    def test_a_plan_that_answers_otherwise_is_dropped(self, network, monkeypatch):
        monkeypatch.setattr("classwise.attacks.quick.reach._WORTH", 1.0)
        images = pictures(4, height=20, width=17)
        patches = Patches(network, images)
        whole = Patches._put_back
        monkeypatch.setattr(Patches, "_put_back", lambda *facts: whole(*facts) + 1)
        assert not patches.remember(2, torch.arange(4), images)

    @pytest.mark.parametrize("width", [3, 64])
    def test_square_walks_the_same_way(self, width, monkeypatch):
        model = seeded(lambda: built("cnn"))
        images = pictures(20, height=24, width=28)
        with torch.no_grad():
            model.head.bias -= model(images).mean(0)  # so that no class has them all
            labels = model(images).argmax(1)
        facts = {"num_classes": 5, "ball": LINF, "seed": 0, "width": width}
        radius = torch.linspace(0.001, 0.2, 20, dtype=torch.float64)
        square = parse_attack("suite(square(queries=300))")

        def walk():
            batch = Batch(images, labels, torch.arange(20))
            return attacked(model, batch, square, radius=radius, **facts)

        asked = []
        ask = Patches.ask
        monkeypatch.setattr(Patches, "ask", lambda *a: asked.append(len(a[1])) or ask(*a))
        with_patches = walk()
        assert sum(asked) > 300
        monkeypatch.setattr(suite, "_patches", lambda *_: None)
        without = walk()
        assert 0 < (without.predicted == labels).sum() < 20
        assert torch.equal(with_patches.iterations, without.iterations)
        assert torch.equal(with_patches.predicted, without.predicted)
        torch.testing.assert_close(with_patches.images, without.images, rtol=0, atol=0)
        torch.testing.assert_close(with_patches.logit_gap, without.logit_gap, rtol=0, atol=1e-11)


class TestMemory:
    def test_once_is_enough_and_the_users_choice_stands(self, monkeypatch):
        monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "100000")
        keep_freed_memory.cache_clear()
        assert keep_freed_memory() is False
        monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_")
        assert keep_freed_memory() is False  # asked before
        keep_freed_memory.cache_clear()

    @pytest.mark.skipif(sys.platform != "linux", reason="an option of glibc")
    def test_it_is_done_where_it_can_be(self, monkeypatch):
        for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_"))]:
            monkeypatch.delenv(name)
        keep_freed_memory.cache_clear()
        assert keep_freed_memory() is True
