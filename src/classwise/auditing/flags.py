"""Signs of trouble that every audit looks for: changing answers, and verdicts that cannot be.

Comparisons are paired and tested, so that chance alone seldom raises a flag.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats
from torch import Tensor

from classwise.attacks.ball import parse_norm
from classwise.attacks.options import without_eps
from classwise.attacks.suite import ask
from classwise.auditing.paired import holm
from classwise.auditing.shards import Predictions
from classwise.spelling import few_names, spell_eps
from classwise.types import Images, LogitModel, Logits

Mask = npt.NDArray[np.bool_]
FEW = 16  # images on which every audit asks twice
SURE = 0.01  # chance of a false flag in each comparison
_MANY = 228  # 0.98²²⁸ = 0.01
_CLIMBS = re.compile("pgd|cw-|fab|deepfool|fgsm")


class Flag(NamedTuple):
    """A sign of trouble: its name, the finding in words, and the classes where it is certain."""

    name: str
    words: str
    classes: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f" ({few_names(self.classes, 10)})" if self.classes else ""
        return f"{self.name}: {self.words}{where}"


def random_flags(
    model: LogitModel, images: Images, logits: Logits, width: int, passes: int = 1
) -> list[Flag]:
    """Ask a second time about the same images; `logits` are the first answers."""
    again = ask(model, images, width, logits.shape[1])
    differs = (again - logits).abs().amax(1) > tolerance(logits)
    if not bool(differs.any()):
        return []
    what = "two passes" if passes == 1 else f"two means of {passes} passes"
    words = (
        f"{what} over the same images differ for {int(differs.sum())} of {len(logits)}, so "
        f"verdicts depend on luck; audit the mean of {'several' if passes == 1 else 'more'} passes "
        f"(--repeat {10 * passes})"
    )
    return [Flag("random", words)]


def tolerance(logits: Logits) -> Tensor:
    """How far rounding may move the logits of each image; tensor cores round to ten bits."""
    coarse = logits.is_cuda or logits.dtype in (torch.float16, torch.bfloat16)
    return (1e-2 if coarse else 1e-4) * (1 + logits.float().abs().amax(1))


def check_records(found: Sequence[Predictions], class_names: Sequence[str]) -> list[Flag]:
    """Flags that stored verdicts raise by themselves, without the model.

    Of two attacks on the same images the stronger one should break no fewer: gradients no fewer
    than random search, many steps no fewer than few, a larger radius no fewer than a smaller one.
    """
    flags: list[Flag] = []
    idle: set[str] = set()  # conditions for which one flag of that kind is enough
    for weak in found:
        for strong in found:
            said = _order(weak, strong)
            if said is not None:
                name, words = said
                both, here, there = np.intersect1d(weak.sample, strong.sample, return_indices=True)
                if len(both):
                    fell, stood = ~weak.correct[here], strong.correct[there]
                    only_weak, only_strong = fell & stood, ~fell & ~stood
                    label = weak.label[here]
                    flags += _upset(name, words, only_weak, only_strong, label, class_names)
                    differ = only_weak.any() or only_strong.any()
                    if name == "larger-eps-weaker" and not differ and strong.condition not in idle:
                        more = _idle(weak, strong, int((~fell).sum()))
                        idle |= {strong.condition} if more else set()
                        flags += more
    for one in found:
        last = np.array([str(name).startswith("square") for name in one.broken_by])
        before = without_eps(one.condition).split("square")[0]
        climbed = before == "autoattack" or _CLIMBS.search(before)
        if climbed and last.sum() >= max(3, 0.01 * len(last)):
            flags.append(
                Flag(
                    "black-box-beats-white-box",
                    f"in {one.condition}, square broke {last.sum()} of {len(last)} images that "
                    "the gradient attacks before it left standing",
                    _certain(last, np.zeros_like(last), one.label, class_names),
                )
            )
    return flags


def _order(weak: Predictions, strong: Predictions) -> tuple[str, str] | None:
    """Say why `strong` should be stronger than `weak`; None if nothing says so."""
    if weak is strong or weak.norm != strong.norm or "clean" in (weak.condition, strong.condition):
        return None
    near, far = float(weak.radius.max(initial=0)), float(strong.radius.max(initial=0))
    first, second = _Attack.of(weak), _Attack.of(strong)
    pair = f"{weak.condition} breaks images that {strong.condition} does not"
    same = without_eps(weak.condition)
    if near < far and same == without_eps(strong.condition):
        at = f"{same} breaks images at eps {spell_eps(near)} that it does not at {spell_eps(far)}"
        return "larger-eps-weaker", at
    if near != far:
        return None
    if first.kind == "square" and second.kind in ("pgd", "cw", "apgd", "autoattack"):
        return ("black-box-beats-white-box", pair) if second.in_full else None
    one_step = first.kind == "fgsm" and second.kind in ("pgd", "cw") and second.in_full
    longer = first.kind == second.kind and first.kind in ("pgd", "cw") and first.alike(second)
    return (
        ("more-steps-weaker", pair) if second.steps > first.steps and (one_step or longer) else None
    )


class _Attack(NamedTuple):
    """What a condition's name says of its strength."""

    kind: str
    steps: int
    options: frozenset[str]

    @classmethod
    def of(cls, found: Predictions) -> _Attack:
        name, _, rest = without_eps(found.condition).partition("(")
        options = frozenset(one for one in rest.rstrip(")").split(",") if one)
        match = re.fullmatch(r"(pgd|cw)-(\d+)", name)
        if match:
            return cls(match[1], int(match[2]), options | {f"verdict={found.verdict}"})
        kinds = {"fgsm": 1, "square": 0, "apgd": 100, "autoattack": 100}
        return next((cls(k, n, options) for k, n in kinds.items() if name.startswith(k)),
                    cls("other", 0, options))  # fmt: skip

    @property
    def in_full(self) -> bool:
        """Not cut short, aimed elsewhere or slowed down by its options, and of some length."""
        harmless = ("verdict=", "restarts=", "eot=", "queries=")
        return self.steps >= 10 and all(one.startswith(harmless) for one in self.options)

    def alike(self, other: _Attack) -> bool:
        """The same but for the number of steps, which an aim may make weaker."""
        return self.options == other.options and not any("target" in one for one in self.options)


def _upset(
    name: str, words: str, weak: Mask, strong: Mask, label: Any, class_names: Sequence[str]
) -> list[Flag]:
    """A flag if the weaker attack alone breaks more than the stronger alone, beyond chance."""
    ahead = int(weak.sum()), int(strong.sum())
    overall = stats.binomtest(ahead[0], sum(ahead), 0.5, "greater").pvalue if sum(ahead) else 1.0
    classes = _certain(weak, strong, label, class_names)
    if overall > SURE and not classes:
        return []
    return [Flag(name, f"{words}: {ahead[0]} against {ahead[1]} of {len(weak)}", classes)]


def _idle(near: Predictions, far: Predictions, standing: int) -> list[Flag]:
    """A flag if twice the radius breaks nothing more, at a radius where much should fall.

    If even 2 % of the images that stand fell at twice the radius, to see none of `_MANY` fall would
    have a chance of 1 %. More steps that break nothing more are no such sign: a search may have
    come to its end.
    """
    small, large = float(near.radius.max(initial=0)), float(far.radius.max(initial=0))
    if standing < _MANY or large < max(2 * small * (1 - 1e-6), parse_norm(far.norm).far):
        return []
    words = (
        f"{without_eps(far.condition)} at eps {spell_eps(large)} breaks none of the {standing} "
        f"images that stand at {spell_eps(small)}"
    )
    return [Flag("larger-eps-no-stronger", words)]


def _certain(weak: Mask, strong: Mask, label: Any, class_names: Sequence[str]) -> tuple[str, ...]:
    """Classes in which `weak` is ahead beyond chance (sign test, Holm over classes)."""
    b = np.bincount(label[weak], minlength=len(class_names))
    c = np.bincount(label[strong], minlength=len(class_names))
    p_values = stats.binom.sf(b - 1, b + c, 0.5)
    return tuple(class_names[int(k)] for k in np.flatnonzero(holm(p_values) <= SURE))
