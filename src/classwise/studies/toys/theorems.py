"""The four theorems on CFA's binary task, tried on drawn parameters: which claims hold, and when.

Every claim is asked twice: of an adversary that leaves x_1 alone (κ = 0), and of one that moves
every coordinate (κ = ε), which is the threat that the paper states.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from classwise.draws import Draws
from classwise.studies.toys.two_classes import Adversary, TwoClasses

LARGEST_D = 39
_STEPS = 24  # radii at which w* is compared, from 0 to η


@dataclass(frozen=True)
class Case:
    """Parameters that a theorem is tried on; `eps` is what the model is attacked with."""

    toy: TwoClasses
    eps: float

    def __str__(self) -> str:
        toy = self.toy
        return f"d={toy.d}, η={toy.eta:g}, p=({toy.p_easy:g}, {toy.p_hard:g})"

    @property
    def ws(self) -> Any:
        """Weights to look at: as far as the normal density is more than nothing."""
        return math.sqrt(self.toy.d) * np.geomspace(0.01, 15, 60)


@dataclass(frozen=True)
class Broken:
    """A counter-example."""

    case: Case
    words: str

    def __str__(self) -> str:
        return f"{self.case}: {self.words}"


@dataclass(frozen=True)
class Claim:
    """A part of a theorem: `fails` says in words why it does not hold in a case, or nothing.

    The second argument of `fails` is whether the adversary moves x_1, too.
    """

    name: str
    says: str
    fails: Callable[[Case, bool], str]
    fits: Callable[[Case], bool] = lambda _: True  # whether it is asked about a case


def slopes(case: Case, p: float, adversary: Adversary) -> Any:
    """√d·dR/dw at the weights of the case, from the densities themselves."""
    toy, kappa = case.toy, adversary.kappa
    lead, root = toy.d * (toy.eta - adversary.eps), math.sqrt(toy.d)
    right, wrong = (lead + case.ws * (1 - kappa)) / root, (lead - case.ws * (1 + kappa)) / root
    density = [np.exp(-(u**2) / 2) / math.sqrt(2 * math.pi) for u in (right, wrong)]
    return p * (1 - kappa) * density[0] - (1 - p) * (1 + kappa) * density[1]


def _easy_is_better(case: Case, moves_all: bool) -> str:
    toy, some = case.toy, case.ws[case.ws < 6 * math.sqrt(case.toy.d)]
    for adversary in (Adversary(0.0), Adversary(case.eps, moves_all)):
        gap = toy.accuracy(some, toy.p_easy, adversary)
        gap = gap - toy.accuracy(some, toy.p_hard, adversary)
        if (gap <= 0).any():
            w = some[int(gap.argmin())]
            return f"at ε={adversary.eps:.3g}, w={w:.3g} the hard class is not worse"
    return ""


def _optimum_grows(case: Case, moves_all: bool) -> str:
    radii = np.linspace(0, case.toy.eta, _STEPS)
    best = [case.toy.best_robust(Adversary(float(eps), moves_all)) for eps in radii]
    for at, (before, after) in enumerate(pairwise(best)):
        if not (after > before or before == after == math.inf):
            return (
                f"w* falls from {before:.3g} at ε={radii[at]:.3g} to {after:.3g} "
                f"at ε={radii[at + 1]:.3g}"
            )
    return ""


def _clean_optima(case: Case, moves_all: bool) -> str:  # noqa: ARG001  no adversary in it
    easy, hard = (case.toy.best_clean(p) for p in (case.toy.p_easy, case.toy.p_hard))
    return "" if easy > hard else f"w* is {easy:.3g} and {hard:.3g}"


def _clean_falls(case: Case, moves_all: bool) -> str:  # noqa: ARG001  no adversary in it
    toy, nobody = case.toy, Adversary(0.0)
    beyond = case.ws > toy.best_clean(toy.p_easy) * (1 + 1e-9)
    easy, hard = (slopes(case, p, nobody)[beyond] for p in (toy.p_easy, toy.p_hard))
    wrong = ~((hard < easy) & (easy < 0))
    return f"at w={case.ws[beyond][wrong][0]:.3g}" if wrong.any() else ""


def _robust_order(case: Case, moves_all: bool) -> str:
    adversary = Adversary(case.eps, moves_all)
    easy, hard = (slopes(case, p, adversary) for p in (case.toy.p_easy, case.toy.p_hard))
    wrong = ~(hard < easy)
    return f"at ε={case.eps:.3g}, w={case.ws[wrong][0]:.3g}" if wrong.any() else ""


def _robust_grows(case: Case, moves_all: bool) -> str:
    slope = case.toy.slope(case.toy.p_hard, Adversary(case.eps, moves_all))
    if slope.always_rises:
        return ""
    begin = slope.roots[0] if slope.roots and slope.at(slope.roots[0] / 2) >= 0 else 0.0
    return f"at ε={case.eps:.3g} R₋ falls from w={begin:.3g} on"


def _strong(case: Case) -> bool:
    return case.eps >= case.toy.eta


def _weak(case: Case) -> bool:
    return not _strong(case)


def _strong_and_sure(case: Case) -> bool:
    """ε ≥ η, and x_1 of the hard class is right often enough to be relied on when it is moved."""
    return _strong(case) and case.toy.p_hard >= (1 + case.eps) / 2


CLAIMS = (
    Claim("Theorem 1", "A₊ > A₋ and R₊ > R₋ for every w", _easy_is_better),
    Claim("Theorem 2", "w*(ε) grows on 0 ≤ ε ≤ η", _optimum_grows),
    Claim("Theorem 3", "w*₊ > w*₋ on clean points", _clean_optima),
    Claim("Theorem 4, clean", "ΔA₋ < ΔA₊ < 0 for w > w*₊", _clean_falls),
    Claim("Theorem 4, order", "ΔR₋ < ΔR₊ for every w", _robust_order),
    Claim("Theorem 4, gain", "0 < ΔR₋ for every w, at ε ≥ η", _robust_grows, _strong),
    Claim("", "the same, if p₋ ≥ (1 + ε)/2 as well", _robust_grows, _strong_and_sure),
    Claim("", "0 < ΔR₋ for every w, at ε < η", _robust_grows, _weak),
)


@dataclass(frozen=True)
class Tried:
    """What became of a claim."""

    claim: Claim
    moves_all: bool
    cases: int  # that it was tried on
    failed: int
    example: Broken | None  # the first that broke it

    def __str__(self) -> str:
        """A verdict in words.

        >>> print(try_claims(20)[0])
        holds in all 20
        """
        if self.example is None:
            return f"holds in all {self.cases}"
        return f"fails in {self.failed} of {self.cases}; such as {self.example}"


def cases(count: int, seed: int = 0) -> list[Case]:
    """Drawn parameters, rounded to what can be printed; for every other one ε ≥ η."""
    index = torch.arange(count)
    unit = Draws(seed, "toy parameters").uniform(index, (5,), torch.float64).tolist()
    found = []
    for number, (size, eta, one, other, eps) in enumerate(unit):
        low, high = sorted((one, other))
        hard = round(0.5 + 0.49 * low, 3)
        toy = TwoClasses(
            d=1 + int(LARGEST_D * size),
            eta=round(0.01 + 0.48 * eta, 3),
            p_hard=hard,
            p_easy=max(round(0.5 + 0.49 * high, 3), round(hard + 0.001, 3)),
        )
        above = toy.eta + eps * (0.99 - toy.eta)
        found.append(Case(toy, above if number % 2 else eps * toy.eta))
    return found


def try_claims(count: int, seed: int = 0) -> list[Tried]:
    """Every claim on so many drawn cases, first for κ = 0, then for κ = ε."""
    drawn = cases(count, seed)
    found = []
    for claim in CLAIMS:
        for moves_all in (False, True):
            fitting = [case for case in drawn if claim.fits(case)]
            broken = [Broken(c, why) for c in fitting if (why := claim.fails(c, moves_all))]
            example = broken[0] if broken else None
            found.append(Tried(claim, moves_all, len(fitting), len(broken), example))
    return found
