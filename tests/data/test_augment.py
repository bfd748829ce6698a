"""Crops and flips against a straight loop."""

import pytest
import torch

from classwise.data.augment import CropFlip, fit_augment
from classwise.data.dataset import Allowed
from classwise.data.idbh import IDBH
from classwise.draws import Draws
from classwise.errors import ClasswiseError


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


class TestSparePixels:
    """Images that were stored larger than they are used."""

    SPARE, SIDE, COUNT = 4, 6, 300

    def wide(self):
        """Every pixel tells where it stood."""
        side = self.SIDE + self.SPARE
        rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        return torch.stack([rows, columns]).float().expand(self.COUNT, 2, side, side)

    def crop(self, **said):
        allowed = Allowed(self.SIDE, mirrored=False, spare=self.SPARE, **said)
        return fit_augment(CropFlip(), allowed)

    def test_windows_are_real_pixels_everywhere_in_what_is_stored(self):
        index = torch.arange(self.COUNT)
        cut = self.crop()(self.wide(), index, 0, 3)
        assert cut.shape == (self.COUNT, 2, self.SIDE, self.SIDE)
        corner = cut[:, :, 0, 0]
        step = torch.stack(torch.meshgrid(*[torch.arange(self.SIDE)] * 2, indexing="ij"))
        assert torch.equal(cut, corner[:, :, None, None] + step)  # nothing was padded
        assert {tuple(one) for one in corner.int().tolist()} == {
            (row, column) for row in range(5) for column in range(5)
        }

    def test_draws_are_those_of_padded_images_and_keyed_by_the_index(self):
        wide, index = self.wide(), torch.arange(self.COUNT)
        cut = self.crop()(wide, index, 0, 3)
        rows, columns = CropFlip(pad=2, flip=False).places(cut.shape, index, 0, 3)
        assert torch.equal(cut[:, 0], rows.expand(-1, -1, self.SIDE).float())
        assert torch.equal(cut[:, 1], columns.expand(-1, self.SIDE, -1).float())
        some = torch.tensor([7, 3])
        assert torch.equal(self.crop()(wide[some], some, 0, 3), cut[some])

    def test_what_may_not_be_moved_is_cut_from_the_middle(self):
        cut = self.crop(moved=0)(self.wide(), torch.arange(self.COUNT), 0, 3)
        assert torch.equal(cut, self.wide()[:, :, 2:8, 2:8])

    def test_beyond_the_spare_pixels_the_border_is_made_up(self):
        wide, index = self.wide(), torch.arange(self.COUNT)
        cut = self.crop(moved=3)(wide, index, 0, 3)
        assert cut.shape[2:] == (self.SIDE, self.SIDE)
        rows, columns = CropFlip(pad=3, flip=False).places(cut.shape, index, 0, 3)
        padded = torch.nn.functional.pad(wide, [1] * 4, mode="reflect").permute(0, 2, 3, 1)
        taken = padded[index[:, None, None], rows, columns].permute(0, 3, 1, 2)
        assert torch.equal(cut, taken)

    def test_other_transforms_do_not_throw_them_away_unseen(self):
        with pytest.raises(ClasswiseError, match=r"spare=4 .* IDBH does not; set spare=0"):
            fit_augment(IDBH("colour", 0.5, 0.5), Allowed(6, spare=4))
