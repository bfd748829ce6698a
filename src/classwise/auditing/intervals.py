"""Honest intervals for rates counted from few samples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats

Rates = npt.NDArray[np.float64]


def wilson(hits: npt.ArrayLike, samples: npt.ArrayLike, level: float = 0.95) -> tuple[Rates, Rates]:
    """Wilson score interval of each rate; nan where there is no sample.

    centre (p + z²/2n) / (1 + z²/n), half width z·√(p(1−p)/n + z²/4n²) / (1 + z²/n)

    >>> low, high = wilson([5], [10])
    >>> round(float(low[0]), 4), round(float(high[0]), 4)
    (0.2366, 0.7634)
    """
    n = np.asarray(samples, dtype=np.float64)
    n = np.where(n > 0, n, np.nan)
    rate = np.asarray(hits, dtype=np.float64) / n
    z2 = float(stats.norm.ppf((1 + level) / 2)) ** 2
    centre = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = np.sqrt(z2 * (rate * (1 - rate) / n + z2 / (4 * n**2))) / (1 + z2 / n)
    # Rounding must not push the ends past what was counted.
    return np.minimum(np.clip(centre - half, 0, 1), rate), np.maximum(
        np.clip(centre + half, 0, 1), rate
    )
