"""What is known of each image beside its class: its camera, its track, the patient it is of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from classwise.errors import ClasswiseError, cut, unknown


@dataclass(frozen=True, eq=False)
class Attributes:
    """A word per image for each attribute; an empty one where nothing is known.

    Images with the same word under `whole` may be near-duplicates: no split divides them.

    >>> tracks = Attributes.of({"track": ["a", "b", "a", ""]}, whole="track")
    >>> tracks.together.tolist(), tracks.take(torch.tensor([2, 1])).words["track"].tolist()
    ([0, 1, 0, 2], ['a', 'b'])
    """

    words: Mapping[str, NDArray[np.object_]]
    whole: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Sequence[str]], whole: str = "") -> Attributes | None:
        """Attributes as lists of words; nothing where there are none."""
        if whole and whole not in given:
            raise unknown("column to group by", whole, given)
        words = {name: np.array(list(entries), object) for name, entries in given.items()}
        return cls(words, whole) if words else None

    def take(self, index: Tensor) -> Attributes:
        """Those of the images at the index."""
        rows = index.numpy()
        return replace(self, words={name: each[rows] for name, each in self.words.items()})

    def followed_by(self, other: Attributes, order: Tensor) -> Attributes:
        """Those of both, then brought into an order."""
        both = {n: np.concatenate([each, other.words[n]]) for n, each in self.words.items()}
        return replace(self, words=both).take(order)

    @property
    def together(self) -> Tensor | None:
        """The number of each image's group, one that no split divides; None: there are none.

        Whoever is in no group is alone.
        """
        if not self.whole:
            return None
        words = self.words[self.whole]
        names, numbers = np.unique(words, return_inverse=True)
        numbers = numbers.astype(np.int64)
        alone = words == ""
        # Groups first, then those that stand alone, each with a number of its own.
        if alone.any():
            numbers = numbers - (names[0] == "")
            numbers[alone] = len(names) - 1 + np.arange(int(alone.sum()))
        return torch.from_numpy(numbers)

    @property
    def digest(self) -> str:
        """Sixteen hex digits over what a split keeps together."""
        words = self.words[self.whole].tolist() if self.whole else []
        return hashlib.blake2b("\0".join(words).encode(), digest_size=8).hexdigest()


def check_undivided(name: str, train: Attributes | None, test: Attributes | None) -> None:
    """Refuse parts that share a group which no split should divide."""
    if train is None or test is None or not train.whole or train.whole != test.whole:
        return
    here, there = ({*each.words[each.whole].tolist()} - {""} for each in (train, test))
    if here & there:
        some = sorted(here & there)
        more = f" and {len(some) - 1} more" if len(some) > 1 else ""
        raise ClasswiseError(
            f"{name}: {train.whole} {cut(some[0], 50)!r}{more} has images in train and in test; "
            f"near-duplicates would be trained and tested on: divide them by {train.whole}, or "
            f"leave group={train.whole} out"
        )
