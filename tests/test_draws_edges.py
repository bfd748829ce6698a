"""The one draw in sixteen million that is exactly 0."""

import math

import pytest
import torch

from classwise.draws import Draws

ZERO = torch.tensor([7_242_456])  # its first 24 bits for this seed and purpose are all 0
DRAWS = Draws(0, "start")


def test_there_is_such_a_draw():
    assert DRAWS.uniform(ZERO, (2,), torch.float64)[0, 0] == 0


def test_a_normal_number_from_it_is_finite():
    other = DRAWS.uniform(ZERO, (2,), torch.float64)[0, 1].item()
    radius = math.sqrt(-2 * math.log(2.0**-25))  # half a step above 0
    expected = radius * math.cos(2 * math.pi * (other + 2.0**-25))
    found = DRAWS.normal(ZERO, (1,), torch.float64).item()
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("concentration", [0.3, 4.0])
def test_a_beta_number_from_it_lies_inside(concentration):
    found = DRAWS.beta(ZERO, concentration, (1,), torch.float64).item()
    other = DRAWS.uniform(ZERO, (2,), torch.float64)[0, 1].item() + 2.0**-25
    cosine = math.cos(2 * math.pi * other)
    t = math.sqrt(2 * concentration * (2.0 ** (25 / concentration) - 1)) * cosine
    tail = 2 * concentration / (2 * concentration + t * t)
    near = tail / (2 + 2 * math.sqrt(1 - tail))  # ½ − ½·|T|/√(2a + T²)
    assert cosine < 0  # so the number itself is the small one of the two
    assert found == pytest.approx(near, rel=1e-9)
