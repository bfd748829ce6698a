"""The images of an audit, by number: some rows of a data set, never a copy of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from classwise.content import tensor_bytes
from classwise.data.dataset import Dataset, check_pixels
from classwise.data.labels import (
    check_class_names,
    check_labels,
    check_num_classes,
    check_superclasses,
)
from classwise.data.memory import fits
from classwise.data.store import Stored
from classwise.errors import ClasswiseError
from classwise.types import Batch

Whole = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class View:
    """Some of the images of a data set, with their labels, numbers and names.

    `index` says where each image stood in the whole that it was taken from, so that draws and rows
    of a ledger keyed by it stay the same whichever images an audit looks at.
    """

    images: Tensor | Stored  # uint8, or floats in [0, 1]; of all images, in memory or in a file
    labels: Tensor
    index: Tensor
    class_names: tuple[str, ...] = ()
    superclass_of: tuple[int, ...] | None = None
    superclass_names: tuple[str, ...] | None = None
    name: str = "given images"
    source: Dataset | None = None
    rows: Tensor | None = None  # which of them; None: all

    @classmethod
    def of(cls, data: Dataset, name: str) -> View:
        """All images of a data set."""
        numbers = torch.arange(len(data))
        above = (data.superclass_of, data.superclass_names)
        return cls(data.pixels, data.labels, numbers, data.class_names, *above, name, data)

    @classmethod
    def given(
        cls,
        images: Any,
        labels: Any,
        num_classes: int,
        class_names: Sequence[str] | None = None,
        superclass_of: Sequence[int] | None = None,
        superclass_names: Sequence[str] | None = None,
    ) -> View:
        """Images and labels that a user has at hand."""
        pixels, numbers = given_images(images), torch.as_tensor(labels)
        check_num_classes(num_classes)
        said = range(num_classes) if class_names is None else class_names
        names = tuple(str(name) for name in said)
        check_labels(numbers, len(pixels), num_classes)
        check_class_names(names)
        above = None if superclass_of is None else tuple(int(one) for one in superclass_of)
        words = None if superclass_names is None else tuple(str(one) for one in superclass_names)
        check_superclasses(num_classes, above, words)
        index = torch.arange(len(pixels), device=numbers.device)
        return cls(pixels, numbers.long(), index, names, above, words)

    def __len__(self) -> int:
        return len(self.labels) if self.rows is None else len(self.rows)

    @cached_property
    def identity(self) -> str:
        """Sixteen hex digits that change with any pixel or label, whichever rows are looked at."""
        if self.source is not None:
            return self.source.content_hash
        return data_hash(self.images[:], self.labels, self.class_names)

    @cached_property
    def numbers(self) -> Whole:
        """The number of each image of the view."""
        every = self.index.cpu() if self.rows is None else self.index.cpu()[self.rows]
        found: Whole = every.numpy()
        return found

    @cached_property
    def truth(self) -> Whole:
        """The label of each image of the view."""
        every = self.labels.cpu() if self.rows is None else self.labels.cpu()[self.rows]
        found: Whole = every.numpy()
        return found

    def take(self, rows: Whole | Tensor) -> View:
        """Some of the view's images, by their place in it."""
        chosen = torch.as_tensor(rows)
        return replace(self, rows=chosen if self.rows is None else self.rows[chosen])

    def on(self, device: torch.device) -> View:
        """With the images on the device, unless they are too many for it."""
        # On the host nothing moves: a mapped file is read where it lies.
        if device == self.images.device or not fits(self.images.nbytes, device):
            return self
        return replace(self, images=self.images.to(device))

    def batch(self, rows: Whole | Tensor) -> Batch:
        """Some of the view's images themselves, by their place in it."""
        chosen = self._numbers(rows)
        parts = (self.images, self.labels, self.index)
        return Batch(*(part[chosen.to(part.device)] for part in parts))

    def expect(self, rows: Whole | Tensor) -> None:
        """Say which images will be asked for next: those in a file are read meanwhile."""
        if isinstance(self.images, Stored) and self.images.on_disk:
            self.images.expect(self._numbers(rows))

    def _numbers(self, rows: Whole | Tensor) -> Tensor:
        chosen = torch.as_tensor(rows)
        return chosen if self.rows is None else self.rows[chosen]

    def about(self) -> dict[str, Any]:
        """What a record must say of its data, so that it can be read without them."""
        return {
            "name": self.name,
            "class_names": self.class_names,
            "superclass_of": self.superclass_of,
            "superclass_names": self.superclass_names,
            "sizes": torch.bincount(self.labels, minlength=len(self.class_names)).tolist(),
        }


def given_images(images: Any) -> Tensor:
    """Images as a tensor, or an error that says what is wrong with them."""
    pixels = torch.as_tensor(images)
    check_pixels(pixels)
    if not len(pixels):
        raise ClasswiseError("no images given; an audit needs at least one")
    if not pixels.dtype.is_floating_point and pixels.dtype != torch.uint8:
        raise ClasswiseError(f"images are {pixels.dtype}; give uint8, or floats in [0, 1]")
    return pixels


def data_hash(images: Tensor, labels: Tensor, class_names: Sequence[str] = ()) -> str:
    """Sixteen hex digits over images and labels that belong to no named data set.

    >>> x, y = torch.zeros(2, 1, 2, 2), torch.tensor([0, 1])
    >>> data_hash(x, y) == data_hash(x.clone(), y), data_hash(x, y) == data_hash(x, 1 - y)
    (True, False)
    """
    digest = hashlib.blake2b("\0".join(class_names).encode(), digest_size=8)
    for tensor in (images, labels):
        for piece in tensor_bytes(tensor):
            digest.update(piece)
    return digest.hexdigest()
