"""Images by number: where they lie, and which of them are meant. A part of them is no copy."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

from classwise.data.ahead import read_ahead
from classwise.data.mapped import Mapped
from classwise.data.memory import empty_images, fits, pieces
from classwise.errors import ClasswiseError

Place: TypeAlias = Tensor | Mapped  # images that lie together, in memory or in a mapped file


@dataclass(frozen=True, eq=False)
class Stored:
    """Some of the images of one place or of several, in an order of their own.

    `images[index]` reads those at the index, a slice or a tensor; `images[:]` reads all. With
    `spare` pixels, images are stored larger by so much than they are used: their middle is read,
    and `wide` has all of them.
    """

    places: tuple[Place, ...]
    rows: Tensor | None = None  # which images of all places, one behind the other; None: all
    spare: int = 0

    @classmethod
    def of(cls, *places: Place, spare: int = 0) -> Stored:
        """All images of some places."""
        shapes = {tuple(place.shape[1:]) for place in places}
        if len(shapes) > 1:
            one, two, *_ = sorted(shapes)
            raise ClasswiseError(
                f"images of {_spelled(one)} and of {_spelled(two)} are no one data set; make them "
                "one size"
            )
        return cls(places, None, spare)

    def __len__(self) -> int:
        return self._count if self.rows is None else len(self.rows)

    @property
    def shape(self) -> torch.Size:
        """Number, channels, height and width, as they are read."""
        channels, height, width = self.places[0].shape[1:]
        return torch.Size((len(self), channels, height - self.spare, width - self.spare))

    @property
    def dtype(self) -> torch.dtype:
        """The kind of a pixel's numbers."""
        return self.places[0].dtype

    @property
    def device(self) -> torch.device:
        """Where they are read to."""
        return self.places[0].device

    @property
    def on_disk(self) -> bool:
        """Whether reading them may have to wait for a disk."""
        return any(isinstance(place, Mapped) for place in self.places)

    @property
    def nbytes(self) -> int:
        """Bytes they take once they are read."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def wide(self) -> Stored:
        """The same images with all pixels that are stored."""
        return replace(self, spare=0)

    def take(self, index: Tensor) -> Stored:
        """Those at the index, a number each or a mask, without reading any."""
        return replace(self, rows=self._rows(index))

    def followed_by(self, other: Stored) -> Stored:
        """These images and then those; of what lies in the same places only numbers are joined."""
        if self.spare != other.spare:
            raise ClasswiseError("images with and without spare pixels are no one data set")
        mine, theirs = self.rows, other.rows
        mine = torch.arange(self._count) if mine is None else mine
        theirs = torch.arange(other._count) if theirs is None else theirs
        same = len(self.places) == len(other.places) and all(
            map(operator.is_, self.places, other.places)
        )
        if same:
            return replace(self, rows=torch.cat([mine, theirs]))
        both = Stored.of(*self.places, *other.places, spare=self.spare)
        return replace(both, rows=torch.cat([mine, theirs + self._count]))

    def __getitem__(self, index: slice | Tensor) -> Tensor:
        """Read images; what lies in memory and one behind the other is not even copied."""
        if isinstance(index, slice):
            if self.rows is None and len(self.places) == 1 and isinstance(self.places[0], Tensor):
                return self._middle(self.places[0][index])
            index = torch.arange(len(self))[index]
        return self._middle(self._read(self._rows(index)))

    def expect(self, index: Tensor) -> None:
        """Say which images will be read next; the disk can begin."""
        for place, within, _ in self._found_in(self._rows(index)):
            if isinstance(place, Mapped):
                place.expect(within.numpy())

    def pieces(self) -> Iterator[Tensor]:
        """All images, so many at a time that memory does not matter."""
        cuts = [slice(*cut) for cut in pieces(self.shape, len(self))]
        return read_ahead(self.__getitem__, cuts) if self.on_disk else map(self.__getitem__, cuts)

    def whole(self) -> Tensor:
        """All images as one tensor: a copy unless they lie so; in a mapped file if too many."""
        if not self.on_disk and (self.rows is None or fits(self.nbytes, self.device)):
            return self[:]
        return self._copied(empty_images(self.shape))

    def to(self, device: torch.device) -> Tensor:
        """All images on a device."""
        return self._copied(torch.empty(self.shape, dtype=self.dtype, device=device))

    def _copied(self, room: Tensor) -> Tensor:
        done = 0
        for piece in self.pieces():
            room[done : done + len(piece)] = piece
            done += len(piece)
        return room

    @cached_property
    def _count(self) -> int:
        return sum(len(place) for place in self.places)

    def _rows(self, index: Tensor) -> Tensor:
        """Numbers among all images of all places."""
        if index.dtype == torch.bool:
            if len(index) != len(self):
                raise IndexError(f"a mask of {len(index)} for {len(self)} images")
            index = index.nonzero().flatten()
        if len(index) and not (-len(self) <= int(index.min()) and int(index.max()) < len(self)):
            raise IndexError(
                f"an image from {int(index.min())} to {int(index.max())} of {len(self)}"
            )
        index = torch.where(index < 0, index + len(self), index)
        return index if self.rows is None else self.rows[index]

    def _read(self, rows: Tensor) -> Tensor:
        if len(self.places) == 1:
            return self.places[0][rows]
        room = torch.empty((len(rows), *self.places[0].shape[1:]), dtype=self.dtype)
        for place, within, where in self._found_in(rows):
            room[where] = place[within]
        return room

    def _found_in(self, rows: Tensor) -> Iterator[tuple[Place, Tensor, Tensor]]:
        """Each place that holds some of them, their numbers there, and which of them they are."""
        begin = 0
        for place in self.places:
            where = ((rows >= begin) & (rows < begin + len(place))).nonzero().flatten()
            if len(where):
                yield place, rows[where] - begin, where
            begin += len(place)

    def _middle(self, images: Tensor) -> Tensor:
        if not self.spare:
            return images
        edge, (height, width) = self.spare // 2, self.shape[2:]
        return images[:, :, edge : edge + height, edge : edge + width].contiguous()


def _spelled(shape: tuple[int, ...]) -> str:
    return "×".join(str(side) for side in shape)
