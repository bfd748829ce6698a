"""STL-10, photos of 96×96, from the official binary files; its unlabelled photos are left out."""

from __future__ import annotations

import numpy as np
import torch

from classwise.data.archives import read_form
from classwise.data.dataset import Dataset, DataSource
from classwise.data.official import FORMS, find, how_to_get
from classwise.errors import ClasswiseError
from classwise.terminal import Terminal

NAMES = (
    "airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck",
)  # fmt: skip
SIDE = 96
ROW = 3 * SIDE * SIDE


def stl10(path: str | None = None) -> DataSource:
    """STL-10: 13000 photos of 96×96 in 10 classes; `classwise data get stl10` fetches it (2.6 GB).

    Its 100000 photos without a label are left out.
    """
    _, files = read_form(find("stl10", path), FORMS["stl10"], how_to_get("stl10"))
    sets = [
        read_part(files.pop(f"{part}_X.bin"), files.pop(f"{part}_y.bin"), part)
        for part in ("train", "test")
    ]
    Terminal(stderr=True).print("stl10: its photos without a label are left out", highlight=False)
    return DataSource("stl10", sets[0], sets[1])


def read_part(pixels: bytes, labels: bytes, part: str) -> Dataset:
    """Photos and labels of one part: planes, column by column; labels from 1 to 10."""
    if len(pixels) != ROW * len(labels):
        raise ClasswiseError(
            f"{part}_X.bin has {len(pixels)} bytes for {len(labels)} labels; every photo has {ROW}"
        )
    numbers = np.frombuffer(labels, np.uint8).astype(np.int64) - 1
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(NAMES)):
        raise ClasswiseError(
            f"{part}_y.bin has labels from {numbers.min() + 1} to {numbers.max() + 1}; STL-10's "
            "run from 1 to 10"
        )
    columns = np.frombuffer(pixels, np.uint8).reshape(-1, 3, SIDE, SIDE)
    images = torch.from_numpy(np.ascontiguousarray(columns.transpose(0, 1, 3, 2)))
    return Dataset(images, torch.from_numpy(numbers), NAMES)
