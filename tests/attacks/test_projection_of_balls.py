"""Projections of both balls against plain loops over pixels."""

import math

import pytest
import torch

from classwise.attacks.ball import Room, parse_norm

COUNT = 12
RNG = torch.Generator().manual_seed(0)
IMAGES = (torch.rand(COUNT, 2, 3, 3, generator=RNG, dtype=torch.float64) * 1.4 - 0.2).clamp(0, 1)
MOVED = IMAGES + 0.3 * torch.randn(COUNT, 2, 3, 3, generator=RNG, dtype=torch.float64)
RADIUS = torch.tensor([0.0, 0.05, 0.3, 5.0], dtype=torch.float64).repeat(3)


def straight(norm, moved, image, radius):
    """First into the ball, then into [0, 1], one pixel after the other."""
    offsets = [m - x for m, x in zip(moved, image, strict=True)]
    if norm == "Linf":
        offsets = [max(-radius, min(radius, offset)) for offset in offsets]
    else:
        length = math.sqrt(sum(offset**2 for offset in offsets))
        offsets = [offset * min(1.0, radius / length) for offset in offsets]
    return [max(0.0, min(1.0, x + offset)) for x, offset in zip(image, offsets, strict=True)]


@pytest.mark.parametrize("norm", ["Linf", "L2"])
class TestProjection:
    def expected(self, norm):
        rows = zip(MOVED.flatten(1).tolist(), IMAGES.flatten(1).tolist(), RADIUS, strict=True)
        found = [straight(norm, moved, image, radius.item()) for moved, image, radius in rows]
        return torch.tensor(found, dtype=torch.float64).view_as(IMAGES)

    def test_equals_a_loop_over_pixels(self, norm):
        found = parse_norm(norm).project(MOVED, IMAGES, RADIUS)
        torch.testing.assert_close(found, self.expected(norm), rtol=0, atol=1e-12)

    def test_with_the_help_of_bounds_it_is_the_same(self, norm):
        ball = parse_norm(norm)
        room = Room(*ball.bounds(IMAGES, RADIUS), IMAGES, RADIUS)
        found = ball.into(MOVED.clone(), room)
        torch.testing.assert_close(found, self.expected(norm), rtol=0, atol=1e-12)

    def test_a_step_uphill_has_its_length(self, norm):
        ball = parse_norm(norm)
        torch.testing.assert_close(ball.distance(ball.uphill(MOVED, RADIUS)), RADIUS)

    def test_random_offsets_lie_in_the_ball_on_both_sides(self, norm):
        ball = parse_norm(norm)
        noise = torch.rand(COUNT, 2, 3, 3, generator=RNG, dtype=torch.float64)
        offset = ball.spread(noise, RADIUS)
        assert (ball.distance(offset) <= RADIUS + 1e-12).all()
        assert torch.equal(offset.sign()[RADIUS > 0], (noise - 0.5).sign()[RADIUS > 0])
