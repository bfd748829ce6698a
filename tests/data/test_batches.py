"""Batches: every sample once, with its label and index."""

import pytest
import torch

from classwise.data.batches import Batches
from classwise.data.dataset import Dataset

CPU = torch.device("cpu")


class TestBatches:
    def batches(self, count, size):
        images = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).expand(count, 1, 2, 2)
        data = Dataset(images, torch.arange(count) % 3, ("a", "b", "c"))
        return Batches.of(data, size, CPU, torch.arange(count) + 1000)

    @pytest.mark.parametrize(
        ("count", "size", "lengths"),
        [
            (10, 4, [4, 4, 2]),
            (9, 4, [4, 5]),  # nobody is left alone
            (8, 4, [4, 4]),
            (3, 4, [3]),
            (1, 4, [1]),
            (5, 4, [5]),
            (4, 1, [1, 1, 2]),
        ],
    )
    def test_every_sample_comes_once_and_none_alone_at_the_end(self, count, size, lengths):
        batches = self.batches(count, size)
        found = list(batches.in_order())
        assert [len(batch) for batch in found] == lengths
        assert len(batches) == len(lengths)
        assert torch.cat([b.index for b in found]).tolist() == list(range(1000, 1000 + count))

    def test_no_sample_makes_no_batch(self):
        assert list(self.batches(0, 4).in_order()) == []
        assert len(self.batches(0, 4)) == 0

    def test_images_labels_and_index_travel_together(self):
        order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
        batches = self.batches(20, 6)
        found = list(batches.along(order))
        index = torch.cat([b.index for b in found]) - 1000
        images = torch.cat([b.images for b in found])
        assert torch.equal(index, order)
        assert torch.equal(torch.cat([b.labels for b in found]), order % 3)
        assert images.dtype == torch.float32
        assert torch.equal((images[:, 0, 0, 0] * 255).round().long(), order)

    def test_float_images_pass_as_they_are(self):
        images = torch.rand(5, 1, 2, 2, dtype=torch.float64)
        batches = Batches(images, torch.zeros(5, dtype=torch.int64), torch.arange(5), 8)
        assert torch.equal(next(iter(batches.in_order())).images, images)
