"""An attacked image stays inside its own ball and inside the range of pixels."""

import pytest
import torch
from cases import CASES
from hypothesis import given, settings
from hypothesis import strategies as st
from inner_attacks import STARTS, batch_of, inner, view
from torch import nn

ATTACKING = [case for case in CASES if case.recipe.attacks]


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
