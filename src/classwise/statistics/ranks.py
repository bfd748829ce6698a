"""Whether several models put the classes in the same order: agreement of ranks.

Models lie on the last axis but one and classes on the last; leading axes, if any, are repetitions.
The result has a row and a column for every model. Agreement with a model whose classes are all
equal is nan: it has no order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from classwise.errors import ClasswiseError
from classwise.statistics.intervals import Rates


def spearman(rates: npt.ArrayLike) -> Rates:
    """Spearman's ρ between all models: the correlation of ranks, ties at their mean rank.

    cos(r_a − r̄, r_b − r̄), r the ranks of the classes

    >>> spearman([[0.1, 0.2, 0.3], [0.2, 0.1, 0.3]]).round(3).tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    """
    ranks = stats.rankdata(_orders(rates), axis=-1)
    return _cosines(ranks - ranks.mean(-1, keepdims=True))


def kendall(rates: npt.ArrayLike) -> Rates:
    """Kendall's τ_b between all models: pairs of classes in the same order less those in another.

    τ_b = (C − D)/√((C + D + T_a)(C + D + T_b)), T the pairs that only the other model tells apart.
    With s_a(i, j) = sign(a_i − a_j) over all pairs this is cos(s_a, s_b).

    >>> kendall([[0.1, 0.2, 0.3], [0.2, 0.1, 0.3]]).round(3).tolist()
    [[1.0, 0.333], [0.333, 1.0]]
    """
    values = _orders(rates)
    one, other = values[..., :, None], values[..., None, :]
    # short numbers are quicker, and exact while the sum of all pairs is below 2²⁴
    kind = np.float32 if values.shape[-1] <= 4096 else np.float64
    signs = np.subtract(one > other, one < other, dtype=kind)
    return _cosines(signs.reshape(*values.shape[:-1], -1))


def worst_overlap(rates: npt.ArrayLike, count: int) -> Rates:
    """The share of a model's `count` worst classes that are among the other's.

    Classes that are equal at the edge share the places that are left: |A ∩ B|/count where there
    are none, Σ_k min(w_a, w_b)/count where class k is among the worst by the weight w.

    >>> worst_overlap([[0.1, 0.2, 0.3], [0.2, 0.1, 0.3], [0.3, 0.1, 0.2]], 2).tolist()
    [[1.0, 1.0, 0.5], [1.0, 1.0, 0.5], [0.5, 0.5, 1.0]]
    """
    values = _orders(rates)
    if not 0 < count < values.shape[-1]:
        raise ClasswiseError(
            f"the {count} worst of {values.shape[-1]} classes: give a number from 1 to "
            f"{values.shape[-1] - 1}"
        )
    edge = np.partition(values, count - 1, axis=-1)[..., count - 1 : count]
    below, at = values < edge, values == edge
    left = count - below.sum(-1, keepdims=True)
    weight = below + at * (left / at.sum(-1, keepdims=True))
    shared: Rates = np.minimum(weight[..., :, None, :], weight[..., None, :, :]).sum(-1)
    return shared / count


def random_agreement(num_classes: int, share: float = 0.95, draws: int = 20_000) -> float:
    """The ρ that two orders without any relation stay below in a `share` of all cases.

    >>> random_agreement(3), 0.5 < random_agreement(10) < 0.6
    (1.0, True)
    """
    random = np.random.default_rng([num_classes, 0xA62EE])
    orders = random.permuted(np.tile(np.arange(float(num_classes)), (draws, 1)), axis=1)
    middle = np.arange(num_classes) - (num_classes - 1) / 2
    found = (orders - orders.mean(1, keepdims=True)) @ middle / (middle @ middle)
    return float(np.quantile(found, share, method="higher"))


def _orders(rates: npt.ArrayLike) -> Rates:
    values = np.asarray(rates, np.float64)
    if values.ndim < 2 or values.shape[-1] < 3:
        raise ClasswiseError("an order needs at least three classes; two agree half of the time")
    return values


def _cosines(rows: npt.NDArray[np.floating[Any]]) -> Rates:
    """The cosine of the angle between all rows; nan where one of them is zero."""
    products = (rows @ np.swapaxes(rows, -1, -2)).astype(np.float64)
    squares = np.diagonal(products, axis1=-2, axis2=-1)
    both = np.sqrt(squares[..., :, None] * squares[..., None, :])
    found: Rates = np.divide(products, both, out=np.full(both.shape, np.nan), where=both > 0)
    return np.clip(found, -1, 1)
