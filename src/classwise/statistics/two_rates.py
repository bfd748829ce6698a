"""Two rates counted on different images: are they equal, and how far apart may they be?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats

from classwise.statistics.intervals import Rates, wilson


def equal_rates_p_value(
    first: npt.ArrayLike, first_of: npt.ArrayLike, second: npt.ArrayLike, second_of: npt.ArrayLike
) -> Rates:
    """Fisher's exact p-value that two rates are equal, both sides by doubling the smaller one.

    p = min(1, 2·min(P(X ≤ first), P(X ≥ first))), X ~ Hypergeometric given all sums

    nan where one of them has no image.

    >>> equal_rates_p_value([8, 3], [10, 10], [1, 3], [10, 10]).round(4).tolist()
    [0.0055, 1.0]
    """
    a, n, b, m = np.broadcast_arrays(
        *(np.asarray(part, np.int64) for part in (first, first_of, second, second_of))
    )
    law = stats.hypergeom(n + m, a + b, n)
    found: Rates = np.minimum(1.0, 2 * np.minimum(law.cdf(a), law.sf(a - 1)))
    return np.where((n > 0) & (m > 0), found, np.nan)


def difference_interval(
    first: npt.ArrayLike,
    first_of: npt.ArrayLike,
    second: npt.ArrayLike,
    second_of: npt.ArrayLike,
    level: float = 0.95,
) -> tuple[Rates, Rates]:
    """Newcombe's interval for the first rate minus the second, from the Wilson interval of each.

    d − √((p − l)² + (u′ − p′)²) to d + √((u − p)² + (p′ − l′)²)

    >>> low, high = difference_interval([56], [70], [48], [80])  # his example
    >>> round(float(low[0]), 4), round(float(high[0]), 4)
    (0.0524, 0.3339)
    """
    rates, ends = [], []
    for hits, of in ((first, first_of), (second, second_of)):
        ends.append(wilson(hits, of, level))
        with np.errstate(invalid="ignore"):
            rates.append(np.asarray(hits, np.float64) / np.asarray(of, np.float64))
    (low, high), (other_low, other_high) = ends
    p, q = rates
    below = np.hypot(p - low, other_high - q)
    above = np.hypot(high - p, q - other_low)
    return p - q - below, p - q + above
