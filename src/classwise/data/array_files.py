"""Data sets in arrays: `npz:PATH`, `npy:PATH`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from classwise.data.arrays import OPTIONAL, PARTS, listed, map_npy, read_npz
from classwise.data.dataset import DataSource, check_flag
from classwise.data.from_arrays import dataset_from_arrays
from classwise.data.labels import check_numbering
from classwise.data.splits import held_out
from classwise.errors import ClasswiseError
from classwise.files import given_path


def npz(
    path: str, mirrored: bool = True, moved: int | None = None, channels_last: bool | None = None
) -> DataSource:
    """An `.npz` file: images and labels, or train_images, train_labels, test_images, test_labels.

    Keras's x_train, y_train, x_test and y_test are read, too. `channels_last=true` says that images
    are (n, height, width, channels) where their shape does not tell. Optional arrays: class_names,
    superclass_of, superclass_names. `mirrored=false` says that a mirror image is no longer of the
    same class, `moved=2` by how many pixels an image may be moved.
    """
    arrays = read_npz(given_path(path))
    said = {"mirrored": mirrored, "moved": moved, "channels_last": channels_last}
    return _from_arrays(f"npz:{Path(path).name}", path, arrays, said)


def npy(
    path: str, mirrored: bool = True, moved: int | None = None, channels_last: bool | None = None
) -> DataSource:
    """A folder of `.npy` files named like the arrays of an `.npz`; images are mapped, not read.

    For data sets larger than memory: uint8 images with channels first stay on disk. Options as for
    an `.npz`.
    """
    arrays = map_npy(given_path(path))
    said = {"mirrored": mirrored, "moved": moved, "channels_last": channels_last}
    return _from_arrays(f"npy:{Path(path).name}", path, arrays, said)


def _from_arrays(
    label: str, path: str, arrays: Mapping[str, Any], said: Mapping[str, Any]
) -> DataSource:
    check_flag("mirrored", said["mirrored"])
    extra: dict[str, Any] = {
        name: listed(name, arrays[name], path) for name in OPTIONAL if name in arrays
    }
    extra |= said
    for name, array in arrays.items():
        if name.endswith("images") and not array.size:
            raise ClasswiseError(f"{path}: {name} holds no image; give at least one per class")
    if "class_names" not in extra:
        given = [np.ravel(value) for name, value in arrays.items() if name.endswith("labels")]
        if given and all(one.dtype.kind in "iu" for one in given):
            check_numbering(torch.from_numpy(np.concatenate(given).astype(np.int64)), path)
    try:
        return _source(label, arrays, extra)
    except ClasswiseError as reason:
        raise ClasswiseError(f"{path}: {reason}") from None


def _source(label: str, arrays: Mapping[str, Any], extra: dict[str, Any]) -> DataSource:
    if set(PARTS) <= set(arrays):
        sets = [
            dataset_from_arrays(arrays[f"{part}_images"], arrays[f"{part}_labels"], **extra)
            for part in ("train", "test")
        ]
        if "class_names" not in extra:  # the larger number of classes holds for both
            names = max((data.class_names for data in sets), key=len)
            sets = [replace(data, class_names=names) for data in sets]
        return DataSource(label, sets[0], sets[1])
    return held_out(label, dataset_from_arrays(arrays["images"], arrays["labels"], **extra))
