"""What an epoch adds up to, kept where it was computed: a step never waits for a number."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from classwise.classes.counts import ClassCounts
from classwise.classes.settings import Seen
from classwise.errors import ClasswiseError

EVERY = 1.0  # seconds between two looks at the losses of a GPU


class Tally:
    """Class counts and losses of the batches of an epoch."""

    def __init__(
        self,
        device: torch.device,
        diverged: Callable[[int, float], ClasswiseError],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._diverged = diverged  # what is wrong with a batch, counted from 1, of this loss
        self.counts: dict[Seen, ClassCounts] = {}
        self._losses: dict[str, list[Tensor]] = {}
        self._sizes: list[int] = []
        self._looked, self._seen = clock(), 0  # when last, and at how many batches
        self._clock = clock
        self._every = 0.0 if device.type == "cpu" else EVERY  # there nobody has to wait for them

    def add(
        self, counts: Mapping[Seen, ClassCounts], losses: Mapping[str, Tensor], size: int
    ) -> None:
        """Take in a batch of `size` images, with the mean of each loss."""
        for seen, value in counts.items():
            self.counts[seen] = self.counts[seen] + value if seen in self.counts else value
        for name, loss in losses.items():
            self._losses.setdefault(name, []).append(loss)
        self._sizes.append(size)

    @property
    def due(self) -> bool:
        """Whether it is time to look for a loss that is no number."""
        return self._clock() - self._looked >= self._every

    def check(self) -> None:
        """Stop at the first batch since the last look whose loss is not finite."""
        self._looked, begin = self._clock(), self._seen
        self._seen = len(self._sizes)
        fresh = self._losses.get("total", [])[begin:]
        for number, loss in enumerate(torch.stack(fresh).tolist() if fresh else (), begin):
            if not math.isfinite(loss):
                raise self._diverged(number + 1, loss)

    def means(self) -> dict[str, float]:
        """Every loss, averaged over the images."""
        images = sum(self._sizes)
        return {
            name: sum(
                loss * size
                for loss, size in zip(torch.stack(all_of_it).tolist(), self._sizes, strict=True)
            )
            / images
            for name, all_of_it in self._losses.items()
        }


def all_finite(weights: Iterable[Tensor]) -> bool:
    """Whether all are numbers; the largest of a tensor tells, which takes no memory to find.

    >>> all_finite([torch.zeros(2)]), all_finite([torch.zeros(2), torch.tensor([1, math.nan, 2])])
    (True, False)
    >>> all_finite([torch.tensor([-math.inf, 0])]), all_finite([torch.zeros(0)])
    (False, True)
    """
    largest = [torch.linalg.vector_norm(one.detach(), math.inf) for one in weights if one.numel()]
    return not largest or bool(torch.stack(largest).isfinite().all())


def diverged(run: Path, epoch: int, batches: int, batch: int, value: float) -> ClasswiseError:
    """Say where a loss was no number; `epoch` are those finished, no batches: after the last."""
    where = f"batch {batch} of {batches}" if batches else "its last batch"
    return ClasswiseError(
        f"training diverged: loss {value} in epoch {epoch + 1}, {where}; the checkpoint after "
        f"epoch {epoch} is kept in {run}; try a lower lr"
    )
