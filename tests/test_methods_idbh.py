import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from equality.idbh import erased
from PIL import Image, ImageEnhance, ImageOps
from refusals import refused
from short_runs import same_weights, short_run

from classwise.data import idbh
from classwise.data.augment import CropFlip, fit_augment
from classwise.data.dataset import Allowed
from classwise.data.idbh import IDBH, OPERATIONS, cropshift
from classwise.data.sources import open_data
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


class TestPolicies:
    def test_the_three_of_them(self):
        found = {
            name: parse_recipe(f"at+idbh(strength={name})").slots.augment
            for name in ("weak", "strong", "svhn")
        }
        assert found["weak"] == IDBH("colour", 0.5, 0.33)
        assert found["strong"] == IDBH("colour", 1.0, 0.33) == parse_recipe("at+idbh").slots.augment
        assert found["svhn"] == IDBH("shape", 1.0, 0.5, reach=8)

    def test_other_words_are_refused(self):
        with refused("idbh(strength="):
            parse_recipe("at+idbh(strength=medium)")

    def test_it_replaces_the_crop(self):
        with refused("idbh", "crop", "augment"):
            parse_recipe("at+idbh+crop")


class TestMirrors:
    """A digit seen in a mirror is no digit."""

    @pytest.mark.parametrize("augment", [None, CropFlip(0), IDBH("colour", 0.0, 0.33)], ids=str)
    def test_only_data_that_allow_it_are_flipped(self, augment):
        assert fit_augment(augment, Allowed(32)).flip
        assert not fit_augment(augment, Allowed(32, mirrored=False)).flip

    def test_no_digit_is_flipped(self):
        # Bright at the left end only: flipped, the bright half would be at the right.
        images = torch.zeros(500, 1, 8, 8)
        images[..., :2] = 1
        for augment in (IDBH("colour", 0.0, 0.33), CropFlip(1, padding="zero")):
            for mirrored in (True, False):
                found = fit_augment(augment, Allowed(8, mirrored))(images, torch.arange(500), 0, 0)
                right = found[..., 4:].sum((1, 2, 3)) > found[..., :4].sum((1, 2, 3))
                assert bool(right.any()) == mirrored

    def test_a_plain_function_is_left_alone(self):
        def same(images, index, seed, epoch):  # noqa: ARG001
            return images

        assert fit_augment(same, Allowed(32, mirrored=False)) is same

    @pytest.mark.parametrize("method", ["idbh", "crop(padding=zero)"])
    def test_the_trainer_tells_the_augmentation_about_the_data(self, tiny, tmp_path, method):
        source = tiny()
        mirrored = replace(source, train=replace(source.train, mirrored=True))
        runs = [
            short_run(tmp_path / name, f"at(steps=1)+{method}", data)
            for name, data in (("digits", source), ("pictures", mirrored))
        ]
        assert not same_weights(*runs)


class TestMoves:
    """How far an image may be moved is a property of the data."""

    def test_only_as_far_as_the_data_allow(self):
        assert fit_augment(None, Allowed(8, moved=0)).pad == 0
        assert fit_augment(None, Allowed(32, moved=2)).pad == 2
        assert fit_augment(None, Allowed(32, moved=9)).pad == 9
        assert fit_augment(IDBH("colour", 0.0, 0.33), Allowed(32, moved=3)).most == 3

    def test_an_explicit_pad_wins(self):
        assert fit_augment(CropFlip(1), Allowed(8, moved=0)).pad == 1

    def test_no_digit_is_moved(self):
        data = open_data("digits")
        assert data.train.allowed == data.test.allowed == Allowed(8, mirrored=False, moved=0)
        images = data.train.images[:50] / 255
        plain = fit_augment(None, data.train.allowed)
        assert torch.equal(plain(images, torch.arange(50), 0, 3), images)
        draws = torch.rand(50, 6, dtype=torch.float64)
        assert torch.equal(cropshift(images, draws, most=0), images)
        assert not torch.equal(cropshift(images, draws), images)
        assert torch.equal(cropshift(images, draws, most=2), cropshift(images, draws))
        shifted = fit_augment(IDBH("colour", 0.0, 0.33), data.train.allowed)
        assert shifted.most == 0

    def test_the_trainer_asks_the_data(self, tiny, tmp_path):
        source = tiny()
        still = replace(source, train=replace(source.train, moved=0))
        runs = [
            short_run(tmp_path / name, "at(steps=1)", data)
            for name, data in (("moved", source), ("still", still))
        ]
        assert not same_weights(*runs)
        assert runs[0].about["data"]["train_hash"] != runs[1].about["data"]["train_hash"]
        told = short_run(tmp_path / "told", "at(steps=1)+crop(pad=0)", source)
        assert same_weights(told, runs[1])

    @pytest.mark.parametrize("moved", [-1, 8, 1.5, True, "2"])
    def test_a_distance_that_is_none_is_refused(self, tiny, moved):
        with refused("moved is", "0 to 7"):
            replace(tiny().train, moved=moved)


class TestCrop:
    def test_the_default_is_what_stands_there_without_it(self, tiny, tmp_path):
        plain = short_run(tmp_path / "plain", "at(steps=1)", tiny())
        assert same_weights(plain, short_run(tmp_path / "crop", "at(steps=1)+crop", tiny()))
        zero = short_run(tmp_path / "zero", "at(steps=1)+crop(padding=zero)", tiny())
        assert not same_weights(plain, zero)

    @pytest.mark.parametrize("side", [8, 32, 64])
    def test_the_pad_follows_the_size(self, side):
        found = CropFlip().for_data(Allowed(side))
        assert found == fit_augment(None, Allowed(side)) == CropFlip(side // 8, True, "reflect")
        images = torch.rand(9, 1, side, side)
        assert torch.equal(
            found(images, torch.arange(9), 0, 0), CropFlip()(images, torch.arange(9), 0, 0)
        )

    def test_options_reach_the_augmentation(self):
        slots = parse_recipe("at+crop(pad=3, padding=zero, flip=false)").slots
        assert slots.augment == CropFlip(3, False, "zero")

    def test_a_pad_that_cannot_be_reflected_is_refused(self, tiny, tmp_path):
        with refused("pad=8", "8 pixels", "padding=zero"):
            short_run(tmp_path / "run", "at+crop(pad=8)", tiny())
        fine = short_run(tmp_path / "zero", "at(steps=1)+crop(pad=8, padding=zero)", tiny())
        assert fine.finished_epochs == 2

    @pytest.mark.parametrize("option", ["pad=-1", "padding=mirror", "flip=2"])
    def test_values_out_of_range_are_refused(self, option):
        with refused(f"crop({option.split('=')[0]}="):
            parse_recipe(f"at+crop({option})")
