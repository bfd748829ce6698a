"""Random generators that other people's code draws from: seeded for it, restored behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def borrowed_generators(seed: int) -> Iterator[None]:
    """Seed the global generators of torch and numpy, and put them back."""
    numpy_state = np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            yield
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
