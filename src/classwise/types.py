"""The few shapes that travel through the whole package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

Images: TypeAlias = Tensor  # n×c×h×w floats in [0, 1]; models normalise inside
Labels: TypeAlias = Tensor  # n int64 class numbers
Logits: TypeAlias = Tensor  # n×K floats
PerSample: TypeAlias = Tensor  # n
PerClass: TypeAlias = Tensor  # K
ClassByClass: TypeAlias = Tensor  # K×K; rows: true class, columns: the other class
LogitModel: TypeAlias = Callable[[Images], Logits]


@dataclass(frozen=True, slots=True)
class Batch:
    """Images, their labels, and where each one sits in its data set.

    The index travels with the image because every random draw is a function of it.
    """

    images: Images
    labels: Labels
    index: Labels

    def __len__(self) -> int:
        return len(self.labels)
