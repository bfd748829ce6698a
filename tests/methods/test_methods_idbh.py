"""IDBH and crops in a recipe: policies, mirrors and moves that the data allow."""

from dataclasses import replace

import pytest
import torch
from refusals import refused
from short_runs import same_weights, short_run

from classwise.data.augment import CropFlip, fit_augment
from classwise.data.dataset import Allowed
from classwise.data.idbh import IDBH, cropshift
from classwise.data.sources import open_data
from classwise.recipe_text import parse_recipe


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
