"""How much a figure differs between trained networks, over seeds and images at once.

Seeds are the unit of repetition, and all networks are asked about the same images. Derivation and
simulated coverage: `docs/effects.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from classwise.errors import ClasswiseError
from classwise.statistics.intervals import Rates, check_level
from classwise.statistics.ranks import spearman
from classwise.statistics.redrawn import Whole, redraw

# from class accuracies (… × rows × classes) to one number for all that stands before (…)
Of = Callable[[Rates], Rates]
# from class accuracies (… × classes), nan where a class has no image, to one number
Measure = Callable[[Rates], Rates]
# from class accuracies (… × rows × classes) to those of one row, or of groups of its classes
PerGroup = Callable[[Rates], Rates]
DRAWS = 1000  # they give a variance and a mean, never a far quantile


class Effect(NamedTuple):
    """A figure, mean over seeds, with the interval of what all seeds and images would give.

    With one seed the interval speaks of these very networks, not of how they were trained.
    """

    value: float
    low: float
    high: float
    by_seed: tuple[float, ...]
    of_seeds: float  # standard error from seed to seed; nan with one seed
    of_images: float  # standard error from choice to choice of the images
    shift: float  # by how much the figure moves on the average when images are drawn anew
    images: int

    @property
    def seeds(self) -> int:
        """How many were paired."""
        return len(self.by_seed)

    @property
    def half(self) -> float:
        """Half the width of the interval, which is even on both sides."""
        return (self.high - self.low) / 2


def paired_effects(
    labels: Whole,
    right: npt.NDArray[np.bool_],
    figures: Sequence[Of],
    num_classes: int,
    *,
    level: float = 0.95,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[Effect]:
    """The effect on each of several figures; `right` is seeds × rows × images.

    With d_s the figure of seed s, n seeds, and d̄* its mean on images drawn anew:

    d̄ ± (√(t²·S²/n + z²·Var d̄*) + |E d̄* − d̄|),  S² = Σ(d_s − d̄)²/(n − 1),

    t of Student's law with n − 1 degrees, since S² is known from few numbers; z of the normal law.

    >>> labels, right = np.zeros(50, int), np.zeros((3, 2, 50), bool)
    >>> right[:, 0, :30] = right[:, 1, :20] = True
    >>> gained = difference([lambda rates: rates[..., 0, 0]], [lambda rates: rates[..., 1, 0]])
    >>> [found] = paired_effects(labels, right, [gained], 1)
    >>> round(found.value, 2), found.low < 0.2 < found.high, found.seeds
    (0.2, True, 3)
    """
    check_level(level)
    seeds, rows, images = right.shape
    if not seeds or not images or len(labels) != images:
        raise ClasswiseError(
            f"an effect needs seeds and images; got {seeds} seeds, {images} verdicts each, "
            f"{len(labels)} labels"
        )
    sizes = np.bincount(labels, minlength=num_classes)
    hits = np.zeros((seeds, rows, num_classes))
    for k in range(num_classes):
        hits[..., k] = right[..., labels == k].sum(-1)
    with np.errstate(invalid="ignore"):
        rates = hits / sizes
    seen = [figure(rates) for figure in figures]
    drawn: list[list[Rates]] = [[] for _ in figures]
    for block in redraw(labels, right.reshape(seeds * rows, images), num_classes, draws, seed):
        again = block.reshape(len(block), seeds, rows, num_classes)
        for kept, figure in zip(drawn, figures, strict=True):
            kept.append(figure(again).mean(-1))
    return [
        _effect(found, np.concatenate(means), level, images)
        for found, means in zip(seen, drawn, strict=True)
    ]


def _effect(by_seed: Rates, means: Rates, level: float, images: int) -> Effect:
    count, value = len(by_seed), float(by_seed.mean())
    if not np.isfinite(by_seed).all() or not np.isfinite(means).all():
        raise ClasswiseError("a figure has no number here; ask only for classes that have images")
    of_images, shift = float(means.std(ddof=1)), float(means.mean()) - value
    of_seeds = float(by_seed.std(ddof=1)) / math.sqrt(count) if count > 1 else math.nan
    half = float(stats.norm.ppf((1 + level) / 2)) * of_images
    if count > 1:
        half = math.hypot(half, float(stats.t.ppf((1 + level) / 2, count - 1)) * of_seeds)
    half += abs(shift)
    found = tuple(float(one) for one in by_seed)
    return Effect(value, value - half, value + half, found, of_seeds, of_images, shift, images)


def average(sizes: npt.ArrayLike) -> Measure:
    """Share of all images that are right; `sizes` of the classes."""
    share = np.asarray(sizes, np.float64) / np.sum(sizes)

    def of(rates: Rates) -> Rates:
        found: Rates = np.nan_to_num(rates) @ share
        return found

    return of


def worst(rates: Rates) -> Rates:
    """The least accuracy of a class."""
    found: Rates = np.nanmin(rates, axis=-1)
    return found


def best(rates: Rates) -> Rates:
    """The greatest accuracy of a class."""
    found: Rates = np.nanmax(rates, axis=-1)
    return found


def spread(rates: Rates) -> Rates:
    """Population standard deviation over the classes."""
    found: Rates = np.nanstd(rates, axis=-1)
    return found


def tail(rates: Rates, share: float = 0.1) -> Rates:
    """Mean accuracy of the worst `share` of the classes, at least one.

    >>> tail(np.arange(20.0) / 20).round(3).tolist()
    0.025
    """
    present = int((~np.isnan(rates)).sum(-1).max())
    lowest = np.sort(rates, axis=-1)[..., : max(1, round(share * present))]  # nan comes last
    found: Rates = lowest.mean(-1)
    return found


def one_class(number: int) -> Measure:
    """The accuracy of one class."""
    return lambda rates: rates[..., number]


def difference(left: Sequence[Of], right: Sequence[Of]) -> Of:
    """The sum of some figures less that of others."""

    def of(rates: Rates) -> Rates:
        found: Rates = np.zeros(rates.shape[:-2])
        for sign, sides in ((1, left), (-1, right)):
            for side in sides:
                found = found + sign * side(rates)
        return found

    return of


def relative(left: Of, right: Of) -> Of:
    """(left − right)/right; nan where there is nothing to compare with, which is refused later."""

    def of(rates: Rates) -> Rates:
        base = right(rates)
        with np.errstate(invalid="ignore", divide="ignore"):
            found: Rates = np.where(base > 0, left(rates) / base - 1, np.nan)
        return found

    return of


def share_over(left: Sequence[Of], right: Sequence[Of]) -> Of:
    """Of all pairs of figures, those with the left one over the right one; a tie is half."""

    def of(rates: Rates) -> Rates:
        found: Rates = np.zeros(rates.shape[:-2])
        for one, other in zip(left, right, strict=True):
            found = found + (np.sign(one(rates) - other(rates)) + 1) / 2
        return found / len(left)

    return of


def same_order(left: PerGroup, right: PerGroup) -> Of:
    """Spearman's ρ between two rows, over their classes or groups of them; nan without an order."""

    def of(rates: Rates) -> Rates:
        found: Rates = spearman(np.stack([left(rates), right(rates)], axis=-2))[..., 0, 1]
        return found

    return of
