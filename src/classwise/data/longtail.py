"""An imbalanced version of any data set: class sizes that fall off exponentially."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from classwise.data.dataset import DataSource
from classwise.data.splits import rank_within_class
from classwise.draws import Draws
from classwise.errors import ClasswiseError


def longtail(source: DataSource, factor: float = 100, seed: int = 0) -> DataSource:
    """Training classes shrink from n to n/factor, exponentially in class order; test stays.

    n_k = n_max · factor^(-k/(K-1)), rounded down as is customary (Cao et al. 2019); a class that
    has fewer images keeps all it has. `factor=100` and `factor=1/100` mean the same. Which images
    stay follows from `seed`.
    """
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not factor > 0:
        raise ClasswiseError(f"factor is {factor!r}; give largest over smallest class, such as 100")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ClasswiseError(f"seed is {seed!r}; give a whole number")
    factor = 1 / factor if factor < 1 else factor
    train = source.train
    wanted = profile(int(train.sizes.max()), train.num_classes, factor)
    if int(wanted.min()) < 1:
        raise ClasswiseError(
            f"factor={factor:g} leaves no image of class {train.class_names[-1]!r}; "
            f"give at most {int(train.sizes.max())}"
        )
    shuffled = Draws(seed, "longtail").order(len(train)).argsort()
    kept = rank_within_class(train.labels, shuffled) < wanted[train.labels]
    name = f"longtail({source.name}, factor={factor:g}" + (f", seed={seed})" if seed else ")")
    # Where the images that stay stood says nothing about where they stand now.
    return replace(source, name=name, train=train.subset(kept.nonzero().flatten()), places=None)


def profile(largest: int, num_classes: int, factor: float) -> Tensor:
    """Number of images of each class.

    >>> profile(5000, 10, 100).tolist()
    [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    """
    if num_classes < 2:
        raise ClasswiseError("a long tail needs at least two classes")
    # The small addition keeps 5000/100 at 50 where the power is a hair below.
    sizes = [largest * factor ** (-k / (num_classes - 1)) + 1e-9 for k in range(num_classes)]
    return torch.tensor([math.floor(size) for size in sizes])
