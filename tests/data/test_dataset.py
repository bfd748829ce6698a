"""What a data set is known by, and the ones that are built in."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from refusals import refused

from classwise.data.dataset import Dataset, DataSource
from classwise.data.from_arrays import dataset_from_arrays
from classwise.data.sources import choose_split, open_data


class TestSources:
    def test_digits_are_the_ones_of_scikit_learn(self):
        source = open_data("digits")
        assert len(source.train) + len(source.test) == 1797
        assert source.train.images.shape[1:] == (1, 8, 8)
        assert source.train.num_classes == 10
        assert source.train.images.max() == 255
        assert int(source.test.sizes.min()) > 50
        assert not source.train.mirrored

    def test_an_unknown_name_lists_the_known_ones(self):
        with refused("'digts'", "did you mean 'digits'", "npz:PATH"):
            open_data("digts")
        with refused("split", "'tset'", "test"):
            choose_split(open_data("digits"), "tset")

    def test_train_and_test_need_the_same_classes(self):
        images, labels = torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 1])
        one, two = Dataset(images, labels, ("a", "b")), Dataset(images, labels, ("a", "c"))
        with refused("b, c"):
            DataSource("mixed", one, two)


class TestContentHash:
    def data(self):
        images = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).view(2, 3, 4, 4)
        return Dataset(images, torch.tensor([0, 1]), ("a", "b"), (0, 0), ("x",))

    def test_it_is_the_same_for_the_same_content(self):
        strided = self.data().images.permute(1, 0, 2, 3).contiguous().permute(1, 0, 2, 3)
        assert not strided.is_contiguous()
        assert replace(self.data(), store=strided).content_hash == self.data().content_hash

    @pytest.mark.parametrize("place", [(0, 0, 0, 0), (1, 2, 3, 3)])
    def test_any_pixel_changes_it(self, place):
        images = self.data().images.clone()
        images[place] += 1
        assert replace(self.data(), store=images).content_hash != self.data().content_hash

    @pytest.mark.parametrize(
        "change",
        [
            {"labels": torch.tensor([0, 0])},
            {"class_names": ("a", "c")},
            {"class_names": ("a", "b", "c"), "superclass_of": (0, 0, 0)},
            {"superclass_of": (0, 1), "superclass_names": ("x", "y")},
            {"superclass_names": ("z",)},
            {"store": torch.arange(96, dtype=torch.uint8).view(2, 3, 8, 2)},
        ],
        ids=["label", "name", "one more name", "group", "name of a group", "shape"],
    )
    def test_anything_else_changes_it(self, change):
        assert replace(self.data(), **change).content_hash != self.data().content_hash


def test_channel_statistics_are_the_mean_and_deviation_of_the_pixels(tiny):
    data = dataset_from_arrays(
        np.random.default_rng(0).integers(0, 256, (9, 5, 5, 3), dtype=np.uint8), np.arange(9)
    )
    mean, deviation = data.channel_statistics
    pixels = data.images.double() / 255
    assert mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), abs=1e-4)
    assert deviation == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist(), abs=1e-4)
    blank = replace(tiny().train, store=torch.zeros_like(tiny().train.images))
    assert blank.channel_statistics[1][0] > 0  # something to divide by
