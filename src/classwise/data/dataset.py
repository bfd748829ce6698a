"""The one type for a set of labelled images."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from classwise.data.attributes import Attributes, check_undivided
from classwise.data.labels import (
    check_class_names,
    check_labels,
    check_superclasses,
)
from classwise.data.notes import noted
from classwise.data.store import Stored
from classwise.errors import ClasswiseError


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may be done to the images of a data set without changing their class."""

    side: int  # pixels of the shorter side
    mirrored: bool = True
    moved: int | None = None  # pixels up, down, left and right; None is an eighth of the side
    spare: int = 0  # pixels by which images were stored larger than they are used

    @property
    def reach(self) -> int:
        """Pixels that an image may be moved by; of a single pixel nothing would be left.

        What was stored to spare says how far, unless somebody says otherwise.

        >>> Allowed(32).reach, Allowed(8).reach, Allowed(8, moved=0).reach, Allowed(1).reach
        (4, 1, 0, 0)
        >>> Allowed(224, spare=32).reach
        16
        """
        if self.spare and self.moved is None:
            return self.spare // 2
        return min(max(1, self.side // 8), self.side - 1) if self.moved is None else self.moved


@dataclass(frozen=True)
class Dataset:
    """A store of images (uint8, n×c×h×w, in memory or a file), labels, and names of all K classes.

    A class may have no sample here; K is the number of names, never the number of labels seen.
    A subset is a view of the same store. `pixels` reads images by number; `images` has them all.
    """

    store: Tensor | Stored
    labels: Tensor
    class_names: tuple[str, ...]
    superclass_of: tuple[int, ...] | None = None  # class number -> superclass number
    superclass_names: tuple[str, ...] | None = None
    mirrored: bool = True  # a mirror image is still of the same class; false for digits
    moved: int | None = None  # pixels it may be moved by; None: an eighth of the side; 0 for digits
    attributes: Attributes | None = None  # what else is known of each image; no part of the content

    def __post_init__(self) -> None:
        if self.store.dtype != torch.uint8 or len(self.store.shape) != 4:
            raise ClasswiseError(
                f"images are {self.store.dtype} of shape {tuple(self.store.shape)}; "
                "a data set needs uint8 of shape (n, channels, height, width)"
            )
        check_labels(self.labels, len(self.store), len(self.class_names))
        check_class_names(self.class_names)
        check_superclasses(self.num_classes, self.superclass_of, self.superclass_names)
        check_moved(self.moved, min(self.store.shape[2:]))

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def pixels(self) -> Stored:
        """The images by number, read where they are wanted."""
        return self.store if isinstance(self.store, Stored) else Stored.of(self.store)

    @cached_property
    def images(self) -> Tensor:
        """All images as one tensor; of a subset, or of a file, that is a copy."""
        return self.pixels.whole()

    @property
    def num_classes(self) -> int:
        """K, the number of classes."""
        return len(self.class_names)

    @property
    def channels(self) -> int:
        """1 for grey images, 3 for colour."""
        return int(self.store.shape[1])

    @property
    def allowed(self) -> Allowed:
        """What an augmentation may do to the images."""
        side, spare = min(self.store.shape[2:]), self.pixels.spare
        return Allowed(side, self.mirrored, self.moved, spare)

    @property
    def together(self) -> Tensor | None:
        """The group of each sample that no split divides; None where there are none."""
        return None if self.attributes is None else self.attributes.together

    @property
    def sizes(self) -> Tensor:
        """Number of samples of each class."""
        return torch.bincount(self.labels, minlength=self.num_classes)

    @cached_property
    def content_hash(self) -> str:
        """Sixteen hex digits that change with any pixel, label or name, `mirrored` and `moved`."""
        return self.find_hash()

    @cached_property
    def channel_statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation of each channel in [0, 1], from exact pixel counts."""
        means, deviations = self.find_statistics()
        return tuple(means), tuple(deviations)

    def find_both(self) -> None:
        """Find the hash and the statistics at the same time, for whoever will ask for them."""
        with ThreadPoolExecutor(1) as beside:
            digest = beside.submit(self.find_hash)
            _ = self.channel_statistics
            self.__dict__["content_hash"] = digest.result()  # where the cached property looks

    def find_hash(self) -> str:
        """The content hash as it is noted, or found now, on any thread.

        Python 3.11 lets one thread at a time find a cached property, whosever it is.
        """
        more = self._said + self.labels.numpy().tobytes()
        return noted(self.pixels, "content hash", more, self._content_hash)

    def find_statistics(self) -> list[list[float]]:
        """Means and deviations of the channels as they are noted, or found now, on any thread."""
        return noted(self.pixels, "channel statistics", b"", self._channel_statistics)

    def subset(self, index: Tensor) -> Dataset:
        """Keep the samples at `index`, in that order, without a copy; the classes stay the same."""
        kept = None if self.attributes is None else self.attributes.take(index)
        images = self.pixels.take(index)
        return replace(self, store=images, labels=self.labels[index], attributes=kept)

    @property
    def _said(self) -> bytes:
        """All that belongs to the content but the pixels and labels."""
        shape, groups = tuple(self.store.shape), (self.superclass_of, self.superclass_names)
        spare = ("spare", self.pixels.spare) if self.pixels.spare else ()
        moved = () if self.moved is None else (self.moved,)
        return repr((shape, self.class_names, *groups, self.mirrored, *moved, *spare)).encode()

    def _content_hash(self) -> str:
        digest = hashlib.blake2b(self._said, digest_size=8)
        for piece in self.pixels.wide.pieces():
            digest.update(piece.contiguous().numpy().data)
        digest.update(self.labels.numpy().tobytes())
        return digest.hexdigest()

    def _channel_statistics(self) -> list[list[float]]:
        counts = torch.zeros(self.channels, 256, dtype=torch.int64)
        for piece in self.pixels.pieces():
            for channel in range(self.channels):
                counts[channel] += torch.bincount(piece[:, channel].flatten(), minlength=256)
        level = torch.arange(256, dtype=torch.float64) / 255
        means, deviations = [], []
        for count in counts:
            share = count.double() / max(int(count.sum()), 1)
            mean = (share * level).sum()
            means.append(round(float(mean), 4))
            deviations.append(
                round(max(float((share * (level - mean) ** 2).sum().sqrt()), 0.01), 4)
            )
        return [means, deviations]


@dataclass(frozen=True)
class DataSource:
    """A named data set with its fixed training and test part."""

    name: str
    train: Dataset
    test: Dataset
    places: tuple[Tensor, Tensor] | None = None  # where both stood in data that were not divided
    set_aside: bool = False  # the test part is a third that nobody but us calls one

    def __post_init__(self) -> None:
        if self.train.class_names != self.test.class_names:
            missing = set(self.train.class_names) ^ set(self.test.class_names)
            raise ClasswiseError(
                f"{self.name}: train and test have different classes: {', '.join(sorted(missing))}"
            )
        check_undivided(self.name, self.train.attributes, self.test.attributes)


def check_flag(name: str, flag: Any) -> None:
    """Refuse anything but true or false."""
    if not isinstance(flag, bool):
        raise ClasswiseError(f"{name} is {flag!r}; write true or false")


def check_moved(moved: Any, side: int) -> None:
    """Refuse anything but a whole number of pixels within the image."""
    if moved is None:
        return
    if not isinstance(moved, int) or isinstance(moved, bool) or not 0 <= moved < side:
        raise ClasswiseError(
            f"moved is {moved!r}; give the pixels by which an image may be moved and still be of "
            f"the same class, a whole number from 0 to {side - 1}"
        )


def check_pixels(images: Tensor) -> None:
    """Refuse float images with NaN or outside [0, 1]."""
    if images.ndim != 4:
        raise ClasswiseError(
            f"images have shape {tuple(images.shape)}; they need (n, channels, height, width)"
        )
    if not images.dtype.is_floating_point or not len(images):
        return
    if not bool(torch.isfinite(images).all()):
        raise ClasswiseError("images contain NaN or infinite pixels; clean the data first")
    low, high = float(images.min()), float(images.max())
    if low < 0 or high > 1:
        raise ClasswiseError(
            f"pixels run from {low:g} to {high:g}, but must lie in [0, 1]; divide by 255, and put "
            "any normalisation inside the model"
        )
