"""From a data set to batches on the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from classwise.data.ahead import read_ahead
from classwise.data.dataset import Dataset
from classwise.data.memory import fits
from classwise.data.store import Stored
from classwise.types import Batch


@dataclass(frozen=True)
class Batches:
    """Images (uint8, or floats in [0, 1]) cut into batches by indexing.

    Batches come out on the device of the labels. The images lie there too where they fit;
    otherwise they stay on the host, in memory or in a mapped file, and travel batch by batch;
    out of a file the next ones are read meanwhile.
    `origin` says where each row stood in the data set it was taken from, so that a draw keyed
    by it stays the same when the split changes.
    """

    images: Tensor | Stored
    labels: Tensor
    origin: Tensor
    batch_size: int

    @classmethod
    def of(
        cls,
        data: Dataset,
        batch_size: int,
        device: torch.device,
        origin: Tensor | None = None,
        *,
        wide: bool = False,
    ) -> Batches:
        """Move a data set to the device, except images that are too many for it.

        `wide` images have all pixels that are stored, for a transform that cuts a window out.
        """
        index = torch.arange(len(data)) if origin is None else origin
        images: Tensor | Stored = data.pixels.wide if wide else data.pixels
        # On the host nothing moves: a mapped file is read where it lies.
        if device != images.device and fits(images.nbytes, device):
            images = images.to(device)
        return cls(images, data.labels.to(device), index.to(device), batch_size)

    def __len__(self) -> int:
        return len(self._cuts())

    def in_order(self) -> Iterator[Batch]:
        """Every sample once, in data set order."""
        return self.along(torch.arange(len(self.labels)))

    def along(self, order: Tensor) -> Iterator[Batch]:
        """Every sample once, in the given order."""
        home = self.labels.device
        order = order.to(home)
        lookup = order.to(self.images.device)

        def read(cut: tuple[int, int]) -> Tensor:
            found = self.images[lookup[slice(*cut)]]
            # pinned, the copy to the device need not be waited for
            return found.pin_memory() if home.type == "cuda" != found.device.type else found

        cuts = self._cuts()
        on_disk = isinstance(self.images, Stored) and self.images.on_disk
        reading = read_ahead(read, cuts) if on_disk else map(read, cuts)
        for (begin, end), images in zip(cuts, reading, strict=True):
            if images.device != home:
                images = images.to(home, non_blocking=home.type == "cuda")
            if images.dtype == torch.uint8:
                images = images.float().div_(255)
            images = images.contiguous(memory_format=torch.channels_last)
            rows = order[begin:end]
            yield Batch(images, self.labels[rows], self.origin[rows])

    def _cuts(self) -> list[tuple[int, int]]:
        count, size = len(self.labels), self.batch_size
        starts = list(range(0, count, size))
        # A lone last sample joins the batch before it: BatchNorm has no variance for one sample.
        if len(starts) > 1 and count - starts[-1] == 1:
            starts.pop()
        return [(begin, end) for begin, end in pairwise([*starts, count]) if end > begin]
