"""What takes long to find out about images is found while the rest of them is being decoded.

A hash over 250 GB reads them all. The images that were just decoded are still in the system's
memory, so it follows the decoding, one piece behind, and no disk is read for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from classwise.data.ahead import Later
from classwise.data.cache import Cache
from classwise.data.decoding import Shard
from classwise.data.mapped import Abandoned, Growing, Mapped
from classwise.errors import ClasswiseError

# Given images that are still being written, the questions that will be asked about them.
Questions = Callable[[Mapped], Sequence[Callable[[], object]]]


class Meanwhile:
    """Answers questions about the images of a cache as they come: `with Meanwhile(…) as follow`.

    An answer is noted where it will be looked for, by whoever gives it. What cannot be answered
    now is found out when somebody asks, so that no trouble here is trouble for the decoding.
    """

    def __init__(self, cache: Cache, questions: Questions) -> None:
        self._cache, self._questions = cache, questions
        self._growing = Growing(len(cache.pictures.files))
        self._answers: list[Later[object]] = []
        self.images: Mapped | None = None

    def __enter__(self) -> Self:
        return self

    def add(self, shard: Shard) -> None:
        """Some more images are there; those of a decoding that was broken off come first."""
        if self.images is None:
            self.images = self._cache.mapped(self._growing)
            for known in self._cache.shards.values():
                self._growing.reach(known.first, known.sums)
            with contextlib.suppress(ClasswiseError):  # it is said where it matters
                self._answers = [Later(ask) for ask in self._questions(self.images)]
        self._growing.reach(shard.first, shard.sums)

    def __exit__(
        self, kind: type[BaseException] | None, what: BaseException | None, at: TracebackType | None
    ) -> None:
        if kind is not None:
            self._growing.abandon()
        for one in self._answers:
            with contextlib.suppress(Abandoned, ClasswiseError, OSError):
                one.get()
