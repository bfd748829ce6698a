"""The binary task of CFA: an easy and a hard class, in closed form (Wei et al., CVPR 2023).

Labels y = ±1 are equally likely. x_1 is y with probability p_y, else −y; x_2 … x_{d+1} are
independent N(ηy, 1). The classifier is sign(x_1 + (x_2 + … + x_{d+1})/w) with w > 0. An adversary
moves x_2 … x_{d+1} by ε each, and x_1 by κ: either κ = ε, or κ = 0 where x_1 is left alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from scipy.special import ndtr

from classwise.draws import Draws
from classwise.errors import ClasswiseError


@dataclass(frozen=True)
class Adversary:
    """How far coordinates are moved, and whether x_1 is among them."""

    eps: float
    moves_all: bool = False  # κ = ε; otherwise κ = 0

    @property
    def kappa(self) -> float:
        """κ, how far x_1 is moved."""
        return self.eps if self.moves_all else 0.0


NOBODY = Adversary(0.0)


@dataclass(frozen=True)
class Slope:
    """The sign of dR/dw at w > 0, which is that of g(w) = level − 2·lead·w + 2·bend·w².

    >>> Slope(level=3.0, lead=2.0, bend=0.5).roots
    (1.0, 3.0)
    """

    level: float  # ln[p(1 − κ) / ((1 − p)(1 + κ))]
    lead: float  # η − ε
    bend: float  # κ/d

    @property
    def roots(self) -> tuple[float, ...]:
        """Where g changes its sign, w > 0, in order."""
        if self.bend == 0:
            found = [self.level / (2 * self.lead)] if self.lead else []
        else:
            inside = self.lead**2 - 2 * self.bend * self.level
            if inside <= 0:
                return ()  # it may touch zero, but stays on one side
            root = math.sqrt(inside)
            # not (lead − root): of two nearly equal numbers little would be left
            large = self.lead + math.copysign(root, self.lead)
            found = [large / (2 * self.bend)]
            found += [self.level / large] if large else []
        return tuple(sorted(w for w in found if w > 0))

    @property
    def always_rises(self) -> bool:
        """Whether R grows with w everywhere: g ≥ 0, and zero at single points at most."""
        somewhere = bool(self.level or self.lead or self.bend)
        return somewhere and not self.roots and self.at(1.0) >= 0 and self.level >= 0

    def at(self, w: float) -> float:
        """g(w)."""
        return self.level - 2 * self.lead * w + 2 * self.bend * w * w


@dataclass(frozen=True)
class TwoClasses:
    """The task with its parameters.

    >>> toy = TwoClasses(d=1, eta=0.4, p_easy=0.9, p_hard=0.7)
    >>> round(toy.best_clean(toy.p_easy), 3), round(toy.best_clean(toy.p_hard), 3)
    (2.747, 1.059)
    """

    d: int
    eta: float
    p_easy: float  # p_+, of the class y = +1
    p_hard: float  # p_-, of the class y = −1

    def __post_init__(self) -> None:
        if not (self.d >= 1 and 0 < self.eta < 0.5 and 0.5 <= self.p_hard < self.p_easy < 1):
            raise ClasswiseError(
                f"d={self.d}, eta={self.eta}, p_easy={self.p_easy}, p_hard={self.p_hard}; the task "
                "needs d ≥ 1, 0 < eta < 0.5 and 0.5 ≤ p_hard < p_easy < 1"
            )

    @property
    def p_mean(self) -> float:
        """p̄: the accuracy over both classes is that of a class with this p."""
        return (self.p_easy + self.p_hard) / 2

    def accuracy(self, w: Any, p: float, adversary: Adversary = NOBODY) -> Any:
        """R(w) of a class with that p, the share that no shift inside the ball turns over.

        `w` is a number or an array. Without an adversary it is the clean accuracy A(w).
        """
        kappa, lead = adversary.kappa, self.d * (self.eta - adversary.eps)
        right = ndtr((lead + w * (1 - kappa)) / math.sqrt(self.d))
        wrong = ndtr((lead - w * (1 + kappa)) / math.sqrt(self.d))
        return p * right + (1 - p) * wrong

    def slope(self, p: float, adversary: Adversary = NOBODY) -> Slope:
        """Where R(w) of a class with that p rises and falls."""
        kappa = adversary.kappa
        level = math.log(p * (1 - kappa) / ((1 - p) * (1 + kappa)))
        return Slope(level, self.eta - adversary.eps, kappa / self.d)

    def best_clean(self, p: float) -> float:
        """w*_y = ln(p/(1 − p))/(2η), where the clean accuracy of a class is highest."""
        return math.log(p / (1 - p)) / (2 * self.eta)

    def best_robust(self, adversary: Adversary) -> float:
        """w*(ε) = argmax R over both classes; 0 and ∞ where R has no maximum but that limit."""
        p = self.p_mean
        slope = self.slope(p, adversary)
        at_zero = float(ndtr(math.sqrt(self.d) * (self.eta - adversary.eps)))
        candidates = {0.0: at_zero, math.inf: p}  # the limits of R
        candidates |= {w: float(self.accuracy(w, p, adversary)) for w in slope.roots}
        return max(candidates, key=lambda w: candidates[w])

    def draw(self, count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """So many points, of shape (count, d + 1), and their labels ±1; the same for the same seed.

        Points 0, 2, 4, … are of the easy class.
        """
        index = torch.arange(count)
        label = torch.where(index % 2 == 0, 1.0, -1.0).double()
        p = torch.where(label > 0, self.p_easy, self.p_hard).double()
        told = Draws(seed, "toy robust feature").uniform(index, (1,), torch.float64)[:, 0] < p
        robust = torch.where(told, label, -label)
        noise = Draws(seed, "toy other features").normal(index, (self.d,), torch.float64)
        return torch.cat([robust[:, None], noise + self.eta * label[:, None]], 1), label
