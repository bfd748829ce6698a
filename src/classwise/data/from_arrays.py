"""A data set out of arrays as people store them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from classwise.data.dataset import Dataset, check_flag, check_pixels
from classwise.data.labels import check_num_classes
from classwise.data.mapped import Mapped, is_mapped
from classwise.data.notes import notes_of
from classwise.data.store import Stored
from classwise.errors import ClasswiseError


def dataset_from_arrays(
    images: Any,
    labels: Any,
    class_names: Sequence[str] | None = None,
    superclass_of: Sequence[int] | None = None,
    superclass_names: Sequence[str] | None = None,
    mirrored: bool = True,
    moved: int | None = None,
    channels_last: bool | None = None,
) -> Dataset:
    """Build a data set from arrays as people store them.

    Takes uint8, or floats in [0, 1] that are multiples of 1/255; grey (n, h, w) or with channels
    first or last. `channels_last` says which where both could be meant.
    """
    array = np.asanyarray(images)
    pixels = _tensor(array, "images", "uint8, or floats in [0, 1]")
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    if pixels.ndim == 4 and has_channels_last(tuple(pixels.shape), channels_last):
        pixels = pixels.permute(0, 3, 1, 2)
    if pixels.dtype.is_floating_point:
        check_pixels(pixels)
        whole = (pixels * 255).round()
        if bool(((pixels * 255 - whole).abs() > 0.01).any()):
            raise ClasswiseError(
                "float pixels are not multiples of 1/255 and would be rounded; store uint8 images, "
                "or pass float tensors to classwise.audit"
            )
        pixels = whole.to(torch.uint8)
    numbers = _tensor(labels, "labels", "whole class numbers")
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if not numbers.dtype.is_floating_point:
        numbers = numbers.long()
    if class_names is None:
        broken = numbers.dtype.is_floating_point  # refused below
        count = int(numbers.max()) + 1 if numbers.numel() and not broken else 0
        check_num_classes(count)
        class_names = [str(k) for k in range(count)]
    pixels = pixels.contiguous()
    # What is already as it must be stays in its file.
    store: Tensor | Stored = pixels
    if is_mapped(array) and pixels.data_ptr() == array.ctypes.data:
        store = Stored.of(Mapped(array.reshape(pixels.shape), None, *notes_of(array)))
    return Dataset(
        store,
        numbers,
        tuple(str(name) for name in class_names),
        None if superclass_of is None else tuple(int(s) for s in superclass_of),
        None if superclass_names is None else tuple(str(s) for s in superclass_names),
        mirrored,
        moved,
    )


def has_channels_last(shape: tuple[int, ...], said: bool | None = None) -> bool:
    """Whether (n, height, width, channels) is meant; what fits both ways must be said.

    >>> has_channels_last((9, 32, 32, 3)), has_channels_last((9, 3, 32, 32))
    (True, False)
    """
    first, last = shape[1] in (1, 3), shape[3] in (1, 3)
    if said is not None:
        check_flag("channels_last", said)
        if not (last if said else first):
            raise ClasswiseError(
                f"images have shape {shape}, and channels_last={str(said).lower()} makes "
                f"{shape[3 if said else 1]} channels of it; there must be 1 or 3"
            )
        return said
    if first and last and shape[1:] != (1, 1, 1):
        raise ClasswiseError(
            f"images have shape {shape}, whose channels may stand first or last; say which with "
            "channels_last=true or channels_last=false"
        )
    return last and not first


def _tensor(values: Any, what: str, wanted: str) -> Tensor:
    array = np.asarray(values)
    if array.dtype.kind not in "buif":
        raise ClasswiseError(f"{what} are {array.dtype}; they must be {wanted}")
    if array.dtype.itemsize > 8:
        raise ClasswiseError(f"{what} are {array.dtype}, which torch does not know; store float64")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.as_tensor(array)
