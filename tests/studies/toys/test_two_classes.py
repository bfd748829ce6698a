"""The binary task of CFA: closed forms against drawn points, optima against a fine grid."""

import math
from functools import cache

import numpy as np
import pytest
import torch

from classwise.errors import ClasswiseError
from classwise.studies.toys.two_classes import Adversary, Slope, TwoClasses

TOYS = [
    TwoClasses(1, 0.4, 0.9, 0.7),
    TwoClasses(7, 0.2, 0.75, 0.55),
    TwoClasses(26, 0.47, 0.58, 0.52),
]
ADVERSARIES = [Adversary(eps, all_of) for eps in (0.1, 0.3, 0.8) for all_of in (False, True)]


@cache
def drawn(toy):
    return toy.draw(80_000)


def attacked_share(toy, sign, w, adversary):
    """The share of a class that stays right when every coordinate is moved against it."""
    points, labels = drawn(toy)
    points, y = points[labels == sign], sign
    worst = points.clone()
    worst[:, 1:] -= y * adversary.eps
    worst[:, 0] -= y * adversary.kappa
    return float((y * (worst[:, 0] + worst[:, 1:].sum(1) / w) > 0).double().mean())


@pytest.mark.parametrize("toy", TOYS, ids=str)
@pytest.mark.parametrize("adversary", [Adversary(0.0), *ADVERSARIES[:4]], ids=str)
def test_closed_forms_are_what_drawn_points_do(toy, adversary):
    for w in (0.3, 2.0):
        for sign, p in ((1, toy.p_easy), (-1, toy.p_hard)):
            found = attacked_share(toy, sign, w, adversary)
            assert found == pytest.approx(float(toy.accuracy(w, p, adversary)), abs=0.01)


def test_no_shift_inside_the_ball_is_worse_than_the_corner():
    toy, adversary, w = TOYS[0], Adversary(0.3, moves_all=True), 1.5
    points, labels = toy.draw(500)
    corner = labels * (points[:, 0] + points[:, 1:].sum(1) / w)
    corner = corner - adversary.kappa - toy.d * adversary.eps / w
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        shift = adversary.eps * (2 * torch.rand(points.shape, generator=generator).double() - 1)
        moved = points + shift
        score = labels * (moved[:, 0] + moved[:, 1:].sum(1) / w)
        assert bool((score >= corner - 1e-12).all())


@pytest.mark.parametrize("toy", TOYS, ids=str)
@pytest.mark.parametrize("adversary", ADVERSARIES, ids=str)
def test_the_optimum_is_the_highest_of_a_fine_grid(toy, adversary):
    grid = np.geomspace(1e-4, 1e4, 4001)
    rates = toy.accuracy(grid, toy.p_mean, adversary)
    best = toy.best_robust(adversary)
    place = min(max(best, grid[0]), grid[-1])
    assert toy.accuracy(place, toy.p_mean, adversary) >= rates.max() - 1e-6
    if 1e-3 < best < 1e3:
        assert grid[rates.argmax()] == pytest.approx(best, rel=2e-2)


@pytest.mark.parametrize("toy", TOYS, ids=str)
def test_the_clean_optimum_of_a_class(toy):
    grid = np.geomspace(1e-3, 1e3, 4001)
    for p in (toy.p_easy, toy.p_hard):
        best = grid[toy.accuracy(grid, p).argmax()]
        assert best == pytest.approx(toy.best_clean(p), rel=2e-2)


@pytest.mark.parametrize("toy", TOYS, ids=str)
@pytest.mark.parametrize("adversary", ADVERSARIES, ids=str)
def test_the_slope_has_the_sign_of_the_difference(toy, adversary):
    slope = toy.slope(toy.p_hard, adversary)
    for w in (0.05, 0.4, 1.0, 3.0, 6.0):
        step = 1e-4
        change = toy.accuracy(w + step, toy.p_hard, adversary)
        change = change - toy.accuracy(w - step, toy.p_hard, adversary)
        if abs(change) > 1e-12:
            assert math.copysign(1, change) == math.copysign(1, slope.at(w))


class TestSlope:
    def test_what_always_rises(self):
        assert Slope(0.5, -0.1, 0.0).always_rises
        assert Slope(0.0, -0.1, 0.0).always_rises  # only at w = 0 it does not
        assert Slope(0.5, 0.0, 0.0).always_rises
        assert Slope(1.0, 0.5, 0.5).always_rises  # it never comes down to zero
        assert Slope(0.25, 0.5, 0.5).always_rises  # it touches zero at one point

    def test_what_does_not(self):
        assert not Slope(0.0, 0.0, 0.0).always_rises  # it stays where it is
        assert not Slope(0.5, 0.1, 0.0).always_rises
        assert not Slope(-0.5, -0.1, 0.2).always_rises
        assert not Slope(0.2, 0.5, 0.5).always_rises
        assert not Slope(0.0, 0.5, 0.5).always_rises

    def test_roots_are_where_it_is_zero(self):
        for slope in (Slope(0.2, 0.5, 0.5), Slope(-0.5, -0.1, 0.2), Slope(1e-9, 0.5, 0.5)):
            assert slope.roots
            assert all(abs(slope.at(w)) < 1e-12 for w in slope.roots)


def test_parameters_out_of_range_are_refused():
    with pytest.raises(ClasswiseError, match="p_hard < p_easy"):
        TwoClasses(1, 0.4, 0.7, 0.9)
    with pytest.raises(ClasswiseError, match="0 < eta < 0"):
        TwoClasses(1, 0.5, 0.9, 0.7)
