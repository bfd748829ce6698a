"""Crops and flips against a straight loop."""

import pytest
import torch

from classwise.data.augment import CropFlip, fit_augment
from classwise.data.dataset import Allowed
from classwise.draws import Draws


def straight_crop(image, top, left, flip, pad, padding):
    """Look every pixel up in the padded image."""
    channels, height, width = image.shape
    out = torch.zeros_like(image)
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                row = i + top - pad
                column = (width - 1 - j if flip else j) + left - pad
                if padding == "zero":
                    if 0 <= row < height and 0 <= column < width:
                        out[c, i, j] = image[c, row, column]
                    continue
                row = -row if row < 0 else row
                row = 2 * (height - 1) - row if row >= height else row
                column = -column if column < 0 else column
                column = 2 * (width - 1) - column if column >= width else column
                out[c, i, j] = image[c, row, column]
    return out


class TestCropFlip:
    @pytest.mark.parametrize("padding", ["reflect", "zero"])
    @pytest.mark.parametrize("flip", [True, False])
    @pytest.mark.parametrize("pad", [0, 1, 3])
    def test_it_equals_a_straight_loop(self, padding, flip, pad):
        images = torch.rand(12, 3, 5, 7, generator=torch.Generator().manual_seed(0))
        index = torch.arange(12) * 7
        found = CropFlip(pad, flip, padding)(images, index, seed=2, epoch=3)
        top, left, coin = Draws(2, "augment", 3).uniform(index, (3,), torch.float64).unbind(1)
        for n in range(12):
            place = [int(draw[n] * (2 * pad + 1)) for draw in (top, left)]
            mirror = flip and coin[n].item() < 0.5
            expected = straight_crop(images[n], *place, mirror, pad, padding)
            assert torch.equal(found[n], expected)

    def test_every_window_and_both_sides_occur(self):
        images = torch.arange(25.0).view(1, 1, 5, 5).expand(2000, 1, 5, 5)
        found = CropFlip(1, padding="zero")(images, torch.arange(2000), 0, 0)
        assert len(found.unique(dim=0)) == 18

    def test_another_epoch_is_another_view(self):
        images, index = torch.rand(20, 1, 6, 6), torch.arange(20)
        crop = CropFlip(2)
        assert torch.equal(crop(images, index, 0, 1), crop(images, index, 0, 1))
        assert not torch.equal(crop(images, index, 0, 1), crop(images, index, 0, 2))

    @pytest.mark.parametrize("side", [1, 2, 8, 32])
    def test_the_default_works_on_images_of_any_size(self, side):
        images = torch.rand(4, 1, side, side)
        found = fit_augment(None, Allowed(side))(images, torch.arange(4), 0, 0)
        assert found.shape == images.shape

    def test_the_default_at_32_pads_4_pixels_by_reflection(self):
        assert fit_augment(None, Allowed(32)) == CropFlip(4, True, "reflect")
        assert fit_augment(None, Allowed(8, False)) == CropFlip(1, False, "reflect")
