"""Any data set in smaller: every square of pixels becomes its mean."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F

from classwise.data.dataset import Dataset, DataSource
from classwise.errors import ClasswiseError


def pooled(source: DataSource, by: int = 2) -> DataSource:
    """Images whose every `by`×`by` pixels are averaged and rounded to bytes: 32×32 become 16×16.

    The classes, the parts and the order of the images stay; the images are held in memory.
    """
    if isinstance(by, bool) or not isinstance(by, int) or by < 1:
        raise ClasswiseError(f"by is {by!r}; give the side of the squares to average, such as 2")
    height, width = source.train.store.shape[2:]
    if height % by or width % by:
        raise ClasswiseError(
            f"{source.name} has images of {height}×{width} pixels, which squares of {by}×{by} do "
            "not fill; give a divisor of both sides"
        )
    name = f"pooled({source.name}, by={by})"
    train, test = _pooled(source.train, by), _pooled(source.test, by)
    return replace(source, name=name, train=train, test=test)


def _pooled(data: Dataset, by: int) -> Dataset:
    """One part, piece by piece; exact in single precision, since sums of bytes are small."""
    pieces = [
        F.avg_pool2d(piece.float(), by).add_(0.5).floor_().byte() for piece in data.pixels.pieces()
    ]
    height, width = (side // by for side in data.store.shape[2:])
    images = torch.cat(pieces) if pieces else torch.empty(0, data.channels, height, width).byte()
    moved = None if data.moved is None else data.moved // by
    return replace(data, store=images, moved=moved)
