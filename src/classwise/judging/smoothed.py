"""Both bounds of a smoothed classifier, class by class: what is certified, and what an attack left.

The robust accuracy of a class at a radius is the share of its images whose class no perturbation of
that size changes. A certificate counts some of them, an attack leaves at least them standing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import isclose
from typing import TYPE_CHECKING, Any

import numpy as np

from classwise.spelling import spell_eps
from classwise.statistics.intervals import Rates
from classwise.statistics.smoothing import Counted, robust_ends

if TYPE_CHECKING:
    from classwise.judging.metrics import ConditionReport


@dataclass(frozen=True, slots=True)
class Drawn:
    """What verdicts on a smoothed classifier rest on; nothing where the model itself was judged."""

    sigma: float = 0.0  # of the noise
    alpha: float = 0.0  # chance that the verdict on one image is wrong
    abstained: tuple[int, ...] = ()  # images of each class of which nothing is certified


@dataclass(frozen=True, eq=False)
class Bracket:
    """A certificate and an attack on one smoothed classifier at one radius."""

    certified: ConditionReport
    attacked: ConditionReport

    @property
    def eps(self) -> float:
        """The radius of both."""
        return self.certified.eps or 0.0

    @cached_property
    def ends(self) -> tuple[Rates, Rates]:
        """Where the robust accuracy of all classes lies, with the report's confidence.

        Of a class that only one of both was asked about, the other end is known to nobody: 0 or 1.
        """
        proof, attack = (
            Counted(one.tally.hits, one.tally.sizes, one.drawn.alpha)
            for one in (self.certified, self.attacked)
        )
        low, high = robust_ends(proof, attack, self.certified.level)
        known = (proof.sizes > 0) | (attack.sizes > 0)
        return (
            np.where(known & (proof.sizes == 0), 0.0, low),
            np.where(known & (attack.sizes == 0), 1.0, high),
        )

    def records(self) -> list[dict[str, Any]]:
        """A row for every class; None where a class has no samples."""
        columns = {
            "certified": self.certified.rates,
            "attacked": self.attacked.rates,
            "low": self.ends[0],
            "high": self.ends[1],
        }
        names, sizes = self.certified.class_names, self.certified.tally.sizes.tolist()
        attacked = self.attacked.tally.sizes.tolist()
        abstained = self.certified.drawn.abstained
        return [
            {
                "class": name,
                "n": sizes[k],
                "attacked_n": attacked[k],
                "abstained": abstained[k] if abstained else None,
                **{key: None if np.isnan(v[k]) else float(v[k]) for key, v in columns.items()},
            }
            for k, name in enumerate(names)
        ]

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "eps": self.eps,
            "eps_text": spell_eps(self.eps),
            "sigma": self.certified.drawn.sigma,
            "certified_by": self.certified.condition,
            "attacked_by": self.attacked.condition,
            "certified_alpha": self.certified.drawn.alpha,
            "attacked_alpha": self.attacked.drawn.alpha,
            "level": self.certified.level,
            "overall": [self.certified.overall, self.attacked.overall],
            "classes": self.records(),
        }

    @property
    def title(self) -> str:
        """What it is about."""
        return f"the model smoothed with sigma {self.certified.drawn.sigma:g}, radius " + spell_eps(
            self.eps
        )

    @property
    def caption(self) -> str:
        """What a reader must know beside the numbers."""
        first, second = self.certified, self.attacked
        return (
            f"Share of each class that is certified at this radius ({first.condition}; each "
            f"certificate is wrong with a chance of at most {first.drawn.alpha:g}) and that an "
            f"attack left standing ({second.condition}; each fall confirmed under fresh noise, "
            f"wrong with a chance of at most {second.drawn.alpha:g}). The robust accuracy of all "
            f"classes at once lies in the last column ({100 * first.level:g} %). Images of which "
            "nothing can be certified are counted as abstained, and as not certified."
        )


def brackets(report: Mapping[str, ConditionReport]) -> list[Bracket]:
    """Every certificate beside every attack on the same smoothed classifier at the same radius."""
    whole = [one for one in report.values() if one.drawn.sigma and not one.unfinished]
    return [
        Bracket(first, second)
        for first in whole
        for second in whole
        if (first.kind, second.kind) == ("certificate", "attack")
        and first.drawn.sigma == second.drawn.sigma
        and isclose(first.eps or 0, second.eps or 0, rel_tol=1e-9)
    ]


def chance_words(report: Mapping[str, ConditionReport]) -> list[str]:
    """What stands beside rates that rest on random draws."""
    found: dict[Drawn, list[str]] = {}
    for name, one in report.items():
        if one.drawn.alpha:
            found.setdefault(replace(one.drawn, abstained=()), []).append(name)
    return [
        f"{', '.join(names)}: of the model smoothed with sigma {drawn.sigma:g}; each certificate "
        f"and each fall is wrong with a chance of at most {drawn.alpha:g}."
        for drawn, names in found.items()
    ]
