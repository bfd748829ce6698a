"""SVHN, house numbers in pictures of 32×32, from the official MATLAB files."""

from __future__ import annotations

import numpy as np
import torch

from classwise.data.archives import read_form
from classwise.data.dataset import Dataset, DataSource
from classwise.data.idx import DIGITS
from classwise.data.mat import read_mat
from classwise.data.official import FORMS, find, how_to_get
from classwise.errors import ClasswiseError


def svhn(path: str | None = None) -> DataSource:
    """SVHN: 99289 digits of house numbers, 32×32; `classwise data get svhn` fetches it.

    The `extra` part is not read.
    """
    _, files = read_form(find("svhn", path), FORMS["svhn"], how_to_get("svhn"))
    train, test = (read_part(files.pop(name), name) for name in FORMS["svhn"][0].md5)
    return DataSource("svhn", train, test)


def read_part(content: bytes, name: str) -> Dataset:
    """Pictures and labels of one file: X is height × width × channels × n, and 10 stands for 0."""
    found = read_mat(content, name)
    pixels, labels = found.get("X"), found.get("y")
    if not isinstance(pixels, np.ndarray) or not isinstance(labels, np.ndarray):
        raise ClasswiseError(f"{name} holds {', '.join(found) or 'nothing'}; SVHN has X and y")
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != (32, 32, 3):
        raise ClasswiseError(
            f"{name}: X is {pixels.dtype} of shape {pixels.shape}; SVHN's is uint8, 32 × 32 × 3 × n"
        )
    numbers = labels.ravel().astype(np.int64)
    if len(numbers) and (numbers.min() < 1 or numbers.max() > 10):
        raise ClasswiseError(
            f"{name}: labels run from {numbers.min()} to {numbers.max()}; SVHN's run from 1 to 10, "
            "where 10 is the digit 0"
        )
    images = torch.from_numpy(np.ascontiguousarray(pixels.transpose(3, 2, 0, 1)))
    return Dataset(images, torch.from_numpy(numbers % 10), DIGITS, mirrored=False)
