"""What noisy answers say of a smoothed classifier: its class, and how far that holds.

g(x) = argmax_c P(f(x + σ·z) = c), z ~ N(0, I). Both functions are given how often f gave each class
and are wrong with a probability of at most α per image (Cohen, Rosenfeld and Kolter, ICML 2019).
Images lie on the first axis, classes on the second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from classwise.statistics.intervals import Rates, lower_bound, simultaneous

Counts = npt.NDArray[np.int64]


class Certified(NamedTuple):
    """The class of each image, and the L2 radius within which it stays; 0 where it abstains."""

    classes: Counts
    radius: Rates

    @property
    def abstained(self) -> npt.NDArray[np.bool_]:
        """Where no class can be named."""
        found: npt.NDArray[np.bool_] = self.radius <= 0
        return found


def certify(selection: Counts, estimation: Counts, sigma: float, alpha: float) -> Certified:
    """CERTIFY: the class is chosen on some answers, and its share bounded on others.

    c = argmax of `selection`, p = Clopper-Pearson lower bound of its share in `estimation` at
    1 − α; radius σ·Φ⁻¹(p) if p > ½, else no class is certain.

    >>> certify(np.array([[9, 1]]), np.array([[990, 10]]), 0.25, 0.001).radius.round(4).tolist()
    [0.4945]
    """
    classes = selection.argmax(axis=1)
    hits = np.take_along_axis(estimation, classes[:, None], axis=1)[:, 0]
    share = lower_bound(hits, estimation.sum(axis=1), alpha)
    return Certified(classes, np.where(share > 0.5, sigma * special.ndtri(share), 0.0))


def predict(counts: Counts, alpha: float) -> tuple[Counts, npt.NDArray[np.bool_]]:
    """PREDICT: the most frequent class, and whether it is certain not to be another.

    Certain where n₁ of n₁ + n₂ answers for the first two classes have a two-sided p value of at
    most α under a fair coin.

    >>> classes, sure = predict(np.array([[60, 40], [90, 10]]), 0.001)
    >>> classes.tolist(), sure.tolist()
    ([0, 0], [False, True])
    """
    second, first = np.partition(counts, -2, axis=1)[:, -2:].T
    p_value = np.minimum(1, 2 * stats.binom.sf(first - 1, first + second, 0.5))
    return counts.argmax(axis=1), p_value <= alpha


def farthest(sigma: float, count: int, alpha: float) -> float:
    """The largest radius that so many answers can certify: all of them say the same.

    >>> round(farthest(0.25, 1000, 0.001), 4)
    0.6158
    """
    return float(sigma * special.ndtri(alpha ** (1 / count)))


class Counted(NamedTuple):
    """Images of each class that are certified, or that stand, and the chance α of each verdict."""

    hits: Counts
    sizes: Counts
    alpha: float


def robust_ends(certified: Counted, standing: Counted, level: float = 0.95) -> tuple[Rates, Rates]:
    """Where the robust accuracy of every class lies, all classes at once with probability `level`.

    Let p be the share of images like these whose class nothing inside the radius changes. One that
    is not robust is certified with a chance of at most α, so the certified share q ≤ p + α·(1 − p);
    one that is robust falls with a chance of at most α′, so the share that stands s ≥ p·(1 − α′):

    (q − α)/(1 − α) ≤ p ≤ s/(1 − α′)

    with the lower end of q and the upper end of s in their simultaneous intervals. Each takes one
    of the two tails of a class, so that the level of the intervals holds for both together. Classes
    lie on the last axis.

    >>> low, high = robust_ends(Counted(np.array([60]), np.array([100]), 0.001),
    ...                         Counted(np.array([80]), np.array([100]), 0.001))
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.497], [0.874])
    """
    low, _ = simultaneous(certified.hits, certified.sizes, level)
    _, high = simultaneous(standing.hits, standing.sizes, level)
    down, up = certified.alpha, standing.alpha
    return np.maximum(0, (low - down) / (1 - down)), np.minimum(1, high / (1 - up))
