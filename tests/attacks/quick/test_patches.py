"""A network looked at through windows gives the answers of the whole."""

import pytest
import torch
from asked import attacked, parse_attack
from small_nets import Normalised, built, pictures, plain, seeded
from torch import nn

from classwise.attacks.ball import LINF
from classwise.attacks.quick.patches import Patches
from classwise.attacks.search import suite
from classwise.models.twin import Following
from classwise.types import Batch

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

        return Following(seeded(make)).now(pictures(4, height=20, width=17))

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
        patches = Patches(Following(flat).now(images), images)
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
        twin = Following(model).now(images)
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
