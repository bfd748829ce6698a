"""Published sets of corrupted images, by number: CIFAR-10-C, CIFAR-100-C, (Tiny-)ImageNet-C.

CIFAR's sets have a file per corruption with five blocks of rows, severity after severity, and one
file of labels; ImageNet's have a folder per corruption, severity and class. Row i of a block, or
the i-th file of all classes in order, belongs to image i of the test set: that labels agree is
checked for all of them, and nothing is read into memory that is not asked for.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from classwise.corruptions.severities import SEVERITIES
from classwise.data.arrays import map_array
from classwise.data.listing import Listing, list_classes
from classwise.data.pictures import NotAnImage, picture_size, read_picture
from classwise.data.view import View
from classwise.errors import ClasswiseError
from classwise.files import given_path


@dataclass(frozen=True)
class PublishedSet:
    """The images of one corruption at one severity."""

    where: str
    rows: _Arrays | _Folders

    @classmethod
    def of(cls, path: str, corruption: str, severity: int) -> PublishedSet:
        """Find them in a folder of either kind."""
        root = given_path(path)
        if not root.is_dir():
            raise ClasswiseError(f"{root} is no folder; give that of CIFAR-10-C or ImageNet-C")
        array = root / f"{corruption}.npy"
        if array.is_file():
            return cls(str(array), _Arrays(array, root / "labels.npy", severity))
        # the archives of ImageNet-C have a folder for each kind of corruption
        for place in (root, *sorted(one for one in root.iterdir() if one.is_dir())):
            folder = place / corruption / str(severity)
            if folder.is_dir():
                return cls(str(folder), _Folders(list_classes(folder)))
        raise ClasswiseError(
            f"{root} has neither {corruption}.npy nor a folder {corruption}/{severity}; it is no "
            "set of corruptions, or lacks this one"
        )

    @property
    def identity(self) -> str:
        """Over the images, or over names and sizes of their files."""
        return self.rows.identity

    def check(self, data: View) -> None:
        """Refuse a set that is not of these very images, as far as anybody can tell."""
        labels = self.rows.labels
        if len(labels) != len(data.labels):
            raise ClasswiseError(
                f"{self.where} has {len(labels)} images, and the data {len(data.labels)}; audit "
                "the split that the set was made of, which is test"
            )
        other = (labels != data.labels.cpu()).nonzero().flatten()
        if len(other):
            first = int(other[0])
            raise ClasswiseError(
                f"{self.where} was made of other images: {len(other)} of {len(labels)} labels "
                f"differ, such as number {first}, {int(labels[first])} there and "
                f"{int(data.labels[first])} here"
            )
        self.rows.check(data)

    def images(self, numbers: Tensor) -> Tensor:
        """Some images in [0, 1], by their numbers."""
        return self.rows.read(numbers.cpu()).float() / 255


@dataclass(frozen=True)
class _Arrays:
    """Five blocks of rows in one `.npy` file."""

    path: Path
    labels_path: Path
    severity: int

    @cached_property
    def _pixels(self) -> Any:
        pixels = map_array(self.path)
        if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[3] not in (1, 3):
            raise ClasswiseError(
                f"{self.path} holds {pixels.dtype} of shape {pixels.shape}; a set of corruptions "
                "has bytes of shape (images, height, width, channels)"
            )
        if len(pixels) % len(SEVERITIES):
            raise ClasswiseError(f"{self.path} has {len(pixels)} rows, which is not five blocks")
        return pixels

    @property
    def _block(self) -> slice:
        count = len(self._pixels) // len(SEVERITIES)
        return slice((self.severity - 1) * count, self.severity * count)

    @cached_property
    def labels(self) -> Tensor:
        found = map_array(self.labels_path)
        if found.ndim != 1 or found.dtype.kind not in "iu" or len(found) != len(self._pixels):
            raise ClasswiseError(
                f"{self.labels_path} holds {found.dtype} of shape {found.shape}; it must have a "
                f"whole number for each of the {len(self._pixels)} rows of {self.path.name}"
            )
        return torch.from_numpy(np.array(found[self._block], np.int64))

    @cached_property
    def identity(self) -> str:
        digest = hashlib.blake2b(digest_size=8)
        block = self._pixels[self._block]
        for begin in range(0, len(block), 1000):
            digest.update(np.ascontiguousarray(block[begin : begin + 1000]).data)
        return digest.hexdigest()

    def check(self, data: View) -> None:
        _same_size(str(self.path), self._pixels.shape[1:], data)

    def read(self, numbers: Tensor) -> Tensor:
        block = self._pixels[self._block]
        return torch.from_numpy(np.array(block[numbers.numpy()])).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class _Folders:
    """A folder per class, a file per image."""

    listing: Listing

    @cached_property
    def labels(self) -> Tensor:
        return torch.tensor(self.listing.labels)

    @cached_property
    def identity(self) -> str:
        root = self.listing.folder
        digest = hashlib.blake2b(digest_size=8)
        for file in self.listing.files:
            digest.update(f"{file.relative_to(root)} {file.stat().st_size}\n".encode())
        return digest.hexdigest()

    def check(self, data: View) -> None:
        if self.listing.class_names != data.class_names:
            raise ClasswiseError(
                f"the class folders of {self.listing.folder} are not those of the data; rows are "
                "matched by their order in them"
            )
        try:
            size = picture_size(self.listing.files[0])
        except NotAnImage as reason:
            raise ClasswiseError(f"{self.listing.files[0]} cannot be read: {reason}") from None
        _same_size(str(self.listing.folder), (*size, 3), data)

    def read(self, numbers: Tensor) -> Tensor:
        return torch.stack([self._one(self.listing.files[int(row)]) for row in numbers])

    def _one(self, file: Path) -> Tensor:
        try:
            size = picture_size(file)
            first = picture_size(self.listing.files[0])
            if size != first:
                raise NotAnImage(f"{size[0]}×{size[1]} pixels where others have {first}")
            return torch.from_numpy(read_picture(file, size, "resize")[0].copy())
        except NotAnImage as reason:
            raise ClasswiseError(f"{file} cannot be used: {reason}") from None


def _same_size(where: str, shape: tuple[int, ...], data: View) -> None:
    """Height, width and channels of the set beside those of the data."""
    _, channels, height, width = data.images.shape
    if tuple(shape) != (height, width, channels):
        raise ClasswiseError(
            f"{where} has images of {shape[0]}×{shape[1]} pixels in {shape[2]} channels, the data "
            f"of {height}×{width} in {channels}"
        )
