"""What a trial is judged by: average and worst-class robust accuracy on validation images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from classwise.classes.counts import TAIL_FROM
from classwise.recipe import Recipe
from classwise.training.config import TrainConfig
from classwise.training.validate import judged_under

LIVE = "live"  # the model as it is trained, no average


@dataclass(frozen=True)
class Pair:
    """Both objectives, the larger the better."""

    average: float
    worst: float  # of the worst class, or the mean of the worst 10 % of 20 classes and more

    def beats(self, other: Pair) -> bool:
        """Whether it is at least as good in both and better in one.

        >>> Pair(0.5, 0.2).beats(Pair(0.5, 0.1)), Pair(0.5, 0.2).beats(Pair(0.5, 0.2))
        (True, False)
        """
        alike = (self.average, self.worst) == (other.average, other.worst)
        return self.average >= other.average and self.worst >= other.worst and not alike

    @property
    def both(self) -> float:
        """Average + worst, by which a compromise is chosen."""
        return self.average + self.worst


@dataclass(frozen=True)
class Judge:
    """Whose rates in a run's history count."""

    attack: str
    weights: str  # an average of the recipe, or the live model

    @classmethod
    def of(cls, recipe: Recipe, config: TrainConfig, images: int) -> Judge:
        """By the attack of validation; of a recipe with an average, that is judged."""
        averages = recipe.slots.averages
        weights = averages[0].name if averages else LIVE
        return cls(judged_under(config, recipe, images).attack, weights)

    def pair(self, record: Mapping[str, Any]) -> tuple[Pair, str]:
        """The objectives after an epoch, and the weights they are of.

        An average that has taken in nothing yet has none; then it is the live model.
        """
        weights = self.weights if self.weights in record["valid"] else LIVE
        return pair_of(record["valid"][weights][self.attack]), weights


def pair_of(rates: Mapping[str, Any]) -> Pair:
    """Both objectives from the rates of the classes; a class without images has no say.

    >>> pair_of({"overall": 0.5, "by_class": [0.75, 0.25, None]})
    Pair(average=0.5, worst=0.25)
    """
    seen = sorted(rate for rate in rates["by_class"] if rate is not None)
    few = max(1, round(0.1 * len(seen))) if len(rates["by_class"]) >= TAIL_FROM else 1
    return Pair(float(rates["overall"]), sum(seen[:few]) / few)


def worst_words(num_classes: int) -> str:
    """What the second objective is called."""
    return "worst 10 % of classes" if num_classes >= TAIL_FROM else "worst class"


T = TypeVar("T")


def front(found: Sequence[tuple[T, Pair]]) -> list[tuple[T, Pair]]:
    """Those that no other beats, the best average first; equals stand side by side."""
    kept = [one for one in found if not any(pair.beats(one[1]) for _, pair in found)]
    return sorted(kept, key=lambda one: (-one[1].average, -one[1].worst))


def compromise(found: Sequence[tuple[T, Pair]]) -> T:
    """The one with the largest sum of both; of equals the first."""
    return max(found, key=lambda one: one[1].both)[0]
