"""Signs of trouble that every audit looks for: changing answers, and verdicts that cannot be.

Comparisons are paired and tested, so that chance alone seldom raises a flag.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats
from torch import Tensor

from classwise.attacks.ball import parse_norm
from classwise.data.view import View
from classwise.models.asking import ask
from classwise.models.subject import Subject
from classwise.record.rows import Predictions
from classwise.spelling import few_names, spell_eps
from classwise.statistics.paired import holm
from classwise.types import Images, LogitModel, Logits

Mask = npt.NDArray[np.bool_]
FEW = 16  # images on which every audit asks twice
SURE = 0.01  # chance of a false flag in each comparison
_MANY = 228  # 0.98²²⁸ = 0.01
_CLIMBING = ("pgd", "cw", "apgd", "autoattack")  # families that should beat random search


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


def steady_flags(subject: Subject, data: View) -> list[Flag]:
    """Whether a model answers differently when it is asked again about a few images."""
    few = subject.take(data.images[:FEW])
    with subject.asked():
        model = subject.logits
        return random_flags(model, few, ask(model, few, FEW), FEW, subject.passes)


def tolerance(logits: Logits) -> Tensor:
    """How far rounding may move the logits of each image; tensor cores round to ten bits."""
    coarse = logits.is_cuda or logits.dtype in (torch.float16, torch.bfloat16)
    return (1e-2 if coarse else 1e-4) * (1 + logits.float().abs().amax(1))


def check_records(found: Sequence[Predictions], class_names: Sequence[str]) -> list[Flag]:
    """Flags that stored verdicts raise by themselves, without the model.

    Of two attacks on the same images the stronger one should break no fewer: gradients no fewer
    than random search, many steps no fewer than few, a larger radius no fewer than a smaller one.
    """
    flags: list[Flag] = _broken_certificates(found, class_names)
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
        if one.family not in ("autoattack", "suite"):
            continue  # nothing that climbs came before the random search
        last = np.array([str(name).startswith("square") for name in one.broken_by])
        if last.sum() >= max(3, 0.01 * len(last)):
            flags.append(
                Flag(
                    "black-box-beats-white-box",
                    f"in {one.condition}, square broke {last.sum()} of {len(last)} images that "
                    "the gradient attacks before it left standing",
                    _certain(last, np.zeros_like(last), one.label, class_names),
                )
            )
    return flags


def _broken_certificates(found: Sequence[Predictions], class_names: Sequence[str]) -> list[Flag]:
    """Flags where an attack changed the class of images inside the radius that is certified.

    Either verdict on an image may be wrong with its chance α, so that both contradict each other
    with a chance of at most α + α′.
    """
    flags = []
    for proof in (one for one in found if one.kind == "certificate"):
        for attack in (one for one in found if one.kind == "attack" and one.sigma == proof.sigma):
            both, here, there = np.intersect1d(proof.sample, attack.sample, return_indices=True)
            assert proof.certified_radius is not None
            reach, inside = proof.certified_radius[here], attack.radius[there]
            broken = (reach > 0) & (reach >= inside) & ~attack.correct[there]
            chance = min(1.0, proof.alpha + attack.alpha)
            if len(both) and stats.binom.sf(broken.sum() - 1, len(both), chance) <= SURE:
                words = (
                    f"{attack.condition} breaks {broken.sum()} of {len(both)} images inside the "
                    f"radius that {proof.condition} certifies, more than chance allows; the model "
                    "answers differently in one of them, or an evaluation is broken"
                )
                label = np.unique(proof.label[here][broken])
                flags.append(
                    Flag("certificate-broken", words, tuple(class_names[int(k)] for k in label))
                )
    return flags


def _order(weak: Predictions, strong: Predictions) -> tuple[str, str] | None:
    """Say why `strong` should be stronger than `weak`; None if nothing says so."""
    attacked = weak.kind == strong.kind == "attack"
    if weak is strong or weak.norm != strong.norm or not attacked:
        return None
    near, far = float(weak.radius.max(initial=0)), float(strong.radius.max(initial=0))
    pair = f"{weak.condition} breaks images that {strong.condition} does not"
    if near < far and _course(weak) == _course(strong) and weak.family != "other":
        name = _plain_name(weak)
        at = f"{name} breaks images at eps {spell_eps(near)} that it does not at {spell_eps(far)}"
        return "larger-eps-weaker", at
    if near != far:
        return None
    in_full = strong.strength >= 10 and not strong.weakened
    if weak.family == "square":
        climbs = strong.family in _CLIMBING and in_full
        return ("black-box-beats-white-box", pair) if climbs else None
    stepping = strong.family in ("pgd", "cw")
    one_step = weak.family == "fgsm" and stepping and in_full
    longer = stepping and _course(weak) == (
        *_course(strong)[:1],
        weak.strength,
        *_course(strong)[2:],
    )
    more = strong.strength > weak.strength and (one_step or longer)
    return ("more-steps-weaker", pair) if more else None


def _course(found: Predictions) -> tuple[str, float, str, str]:
    """All that an attack does, but for its radius."""
    return found.family, found.strength, found.options, found.verdict


def _plain_name(found: Predictions) -> str:
    """The name of an attack without its own radius."""
    name = f"{found.family}-{found.strength:g}" if found.family in ("pgd", "cw") else found.family
    return f"{name}({found.options})" if found.options else name


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
        f"{_plain_name(far)} at eps {spell_eps(large)} breaks none of the {standing} "
        f"images that stand at {spell_eps(small)}"
    )
    return [Flag("larger-eps-no-stronger", words)]


def _certain(weak: Mask, strong: Mask, label: Any, class_names: Sequence[str]) -> tuple[str, ...]:
    """Classes in which `weak` is ahead beyond chance (sign test, Holm over classes)."""
    b = np.bincount(label[weak], minlength=len(class_names))
    c = np.bincount(label[strong], minlength=len(class_names))
    p_values = stats.binom.sf(b - 1, b + c, 0.5)
    return tuple(class_names[int(k)] for k in np.flatnonzero(holm(p_values) <= SURE))
