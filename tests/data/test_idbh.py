"""IDBH's operations against Pillow and against straight loops."""

import math

import numpy as np
import pytest
import torch
from equality.idbh import erased
from PIL import Image, ImageEnhance, ImageOps

from classwise.data import idbh
from classwise.data.idbh import OPERATIONS
from classwise.draws import Draws
from classwise.recipe_text import parse_recipe

N = 24
SHAPES = [(3, 32, 32), (1, 32, 32), (3, 9, 14), (1, 8, 8), (3, 64, 48)]


def levels_of(shape, seed=0, count=N):
    """Whole levels; some images flat, dark or with few levels, as real ones may be."""
    rng = torch.Generator().manual_seed(seed)
    levels = torch.randint(256, (count, *shape), generator=rng).float()
    levels[1] = 77
    levels[2] = (levels[2] / 8).floor() + 30
    levels[3, :, : shape[1] // 2] = 0
    levels[4] = (levels[4] / 128).floor() * 200
    levels[5] = levels[5].sort(dim=2).values
    return levels


def picture(levels):
    array = levels.to(torch.uint8).permute(1, 2, 0).numpy()
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


def pixels(image):
    array = np.asarray(image).astype(np.float32)
    return torch.from_numpy(array[:, :, None] if array.ndim == 2 else array).permute(2, 0, 1)


def strengths(low, high, seed=1):
    rng = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(N, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
class TestAgainstPillow:
    def check(self, found, levels, expected):
        for b in range(len(levels)):
            assert torch.equal(found[b], pixels(expected(picture(levels[b]), b))), b

    @pytest.mark.parametrize(
        ("name", "enhance"),
        [
            ("saturation", ImageEnhance.Color),
            ("brightness", ImageEnhance.Brightness),
            ("contrast", ImageEnhance.Contrast),
            ("sharpness", ImageEnhance.Sharpness),
        ],
    )
    def test_strength_operations(self, shape, name, enhance):
        levels, factor = levels_of(shape), strengths(0.1, 1.9)
        found = idbh.COLOURS[name](levels, factor)
        # Pillow takes the factor as a C float
        self.check(found, levels, lambda image, b: enhance(image).enhance(float(factor[b].float())))
        if shape[0] == 3 or name != "saturation":
            assert not torch.equal(found, levels)
        else:
            assert torch.equal(found, levels)

    @pytest.mark.parametrize(
        ("name", "change"),
        [("autocontrast", ImageOps.autocontrast), ("equalise", ImageOps.equalize)],
    )
    def test_histogram_operations(self, shape, name, change):
        levels = levels_of(shape)
        found = idbh.COLOURS[name](levels, torch.zeros(N))
        self.check(found, levels, lambda image, b: change(image))  # noqa: ARG005

    def test_rotation(self, shape):
        levels = levels_of(shape)
        degrees = torch.cat([torch.arange(-12, 0), torch.arange(1, 13)]).double()
        found = idbh.rotate(levels, degrees)
        self.check(found, levels, lambda image, b: image.rotate(degrees[b].item()))

    @pytest.mark.parametrize("along_x", [True, False])
    def test_shear(self, shape, along_x):
        levels, angle = levels_of(shape), strengths(-0.35, 0.35)
        _, height, width = shape

        def sheared(image, b):
            slope = math.tan(angle[b].item())
            across = (1, slope, -slope * height / 2) if along_x else (1, 0, 0)
            down = (0, 1, 0) if along_x else (slope, 1, -slope * width / 2)
            return image.transform(image.size, Image.Transform.AFFINE, (*across, *down))

        found = idbh.shear(levels, angle, torch.full((N,), along_x))
        self.check(found, levels, sheared)


def straight_cropshift(image, reach, draws):
    """One image, line by line: cut a window, paste it on black."""
    height, width = image.shape[1:]
    total = int(draws[0] * (reach + 1))
    narrow = int(draws[1] * (total + 1))
    low = total - narrow
    top, put_top = int(draws[2] * (low + 1)), int(draws[3] * (low + 1))
    left, put_left = int(draws[4] * (narrow + 1)), int(draws[5] * (narrow + 1))
    window = image[:, top : top + height - low, left : left + width - narrow]
    canvas = torch.zeros_like(image)
    canvas[:, put_top : put_top + height - low, put_left : put_left + width - narrow] = window
    return canvas, total, narrow


@pytest.mark.parametrize(("shape", "reach"), [*zip(SHAPES, (10, 10, 3, 2, 15), strict=True)])
def test_cropshift_equals_a_straight_loop(shape, reach):
    count = 400
    images = levels_of(shape, count=count) / 255 + 0.001  # nothing but the canvas is black
    draws = Draws(0, "crop").uniform(torch.arange(count), (6,), torch.float64)
    found = idbh.cropshift(images, draws)
    totals, narrows = [], []
    for b in range(count):
        expected, total, narrow = straight_cropshift(images[b], reach, draws[b].tolist())
        assert torch.equal(found[b], expected)
        totals.append(total)
        narrows.append(narrow)
    assert set(totals) == set(range(reach + 1))  # both ends included
    assert max(narrows) == reach


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("odds", "area"), [(0.5, 0.33), (1.0, 0.5)])
def test_erasing_equals_a_straight_loop(shape, odds, area):
    count = 200
    levels = levels_of(shape, count=count) + 1
    draws = Draws(1, "erase").uniform(torch.arange(count), (41,), torch.float64)
    found = idbh.random_erasing(levels, draws, odds, area)
    touched = 0
    for b in range(count):
        expected = erased(levels[b], draws[b].tolist(), odds, area)
        assert torch.equal(found[b], expected)
        touched += not torch.equal(expected, levels[b])
    assert abs(touched / count - odds) < 0.1


class TestOneOperation:
    @pytest.mark.parametrize("space", ["colour", "shape"])
    def test_exactly_one_with_the_given_odds_and_strengths(self, space):
        count = 4000
        operations = OPERATIONS[space]
        assert sum(one.odds for one in operations) == pytest.approx(1)
        levels = levels_of((3, 12, 12), count=count)
        draws = Draws(2, "op").uniform(torch.arange(count), (4,), torch.float64)
        found = idbh.one_operation(levels, operations, draws)
        seen = dict.fromkeys((one.name for one in operations), 0)
        for b in range(count):
            which, u, sign, axis = draws[b].tolist()
            edge = 0.0
            for one in operations:
                edge += one.odds
                if which < edge - 1e-12:
                    break
            seen[one.name] += 1
            if b >= 300:
                continue
            strength = torch.tensor([one.low + (one.high - one.low) * u], dtype=torch.float64)
            turn = -1 if sign < 0.5 else 1
            image = levels[b : b + 1]
            if one.name == "rotate":
                assert int(strength) in range(1, 11 if space == "colour" else 31)
                expected = idbh.rotate(image, turn * strength.floor())
            elif one.name == "shear":
                expected = idbh.shear(image, turn * strength, torch.tensor([axis < 0.5]))
            else:
                expected = idbh.COLOURS[one.name](image, strength)
            assert torch.equal(found[b : b + 1], expected), one.name
        for one in operations:
            spread = 4 * math.sqrt(one.odds * (1 - one.odds) / count)
            assert abs(seen[one.name] / count - one.odds) < spread


@pytest.mark.parametrize("strength", ["weak", "strong", "svhn"])
class TestWhole:
    def augment(self, strength):
        return parse_recipe(f"at+idbh(strength={strength})").slots.augment

    @pytest.mark.parametrize("shape", [*SHAPES, (5, 7, 7), (2, 1, 1), (3, 2, 5)], ids=str)
    def test_any_shape_gives_whole_levels(self, strength, shape):
        images = levels_of(shape) / 255
        found = self.augment(strength)(images, torch.arange(N), 0, 1)
        assert found.shape == images.shape
        assert found.dtype == images.dtype
        assert torch.equal(found, (found * 255).round() / 255)
        assert found.min() >= 0
        assert found.max() <= 1

    @pytest.mark.parametrize("batch_size", [1, 7, 64])
    @pytest.mark.usefixtures("untouched_random_state")
    def test_draws_depend_on_the_sample_alone(self, strength, batch_size):
        count = 96
        images, index = levels_of((3, 16, 16), count=count) / 255, torch.arange(count) * 5 + 2
        augment = self.augment(strength)
        whole = augment(images, index, 3, 4)
        order = torch.randperm(count, generator=torch.Generator().manual_seed(batch_size))
        parts = [augment(images[rows], index[rows], 3, 4) for rows in order.split(batch_size)]
        assert torch.equal(torch.cat(parts), whole[order])
        assert not torch.equal(augment(images, index, 3, 5), whole)
        alike = augment(images[:1].expand(count, -1, -1, -1), index, 3, 4)
        assert len(alike.unique(dim=0)) > 0.9 * count

    def test_it_is_flip_then_cropshift_then_operation_then_erasing(self, strength):
        images, index = levels_of((3, 16, 16)) / 255, torch.arange(N)
        augment = self.augment(strength)
        draws = Draws(3, "augment", 4).uniform(index, (11,), torch.float64)
        flipped = torch.stack(
            [x.flip(2) if d < 0.5 else x for x, d in zip(images, draws[:, 0], strict=True)]
        )
        levels = (idbh.cropshift(flipped, draws[:, 1:7], augment.reach) * 255).round()
        levels = idbh.one_operation(levels, OPERATIONS[augment.operations], draws[:, 7:])
        tries = Draws(3, "augment erase", 4).uniform(index, (41,), torch.float64)
        expected = idbh.random_erasing(levels, tries, augment.erase, augment.area) / 255
        assert torch.equal(augment(images, index, 3, 4), expected)
