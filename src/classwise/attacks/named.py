"""Attacks as an audit names them: `clean`, `pgd-20(eps=4/255)`, `autoattack`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from classwise.attacks.adapters import Foreign
from classwise.attacks.apgd import Apgd
from classwise.attacks.deepfool import DeepFool
from classwise.attacks.fab import Fab
from classwise.attacks.fixed import Condition, NamedAttack
from classwise.attacks.options import Option, canonical, read_options
from classwise.attacks.search import Search
from classwise.attacks.square import Square
from classwise.attacks.suite import Suite
from classwise.errors import ClasswiseError, unknown
from classwise.spelling import QUARTER, Call, Share, parse_call, split_outside_brackets

# `eps` is a radius of its own, in place of the one that an audit or a run has for all.
KNOWN_ATTACKS = {
    "clean": "the images as they are",
    "fgsm": "one step of the whole radius, from the image itself; options: eps",
    "pgd-K": "K steps up the cross-entropy from a random start; options: eps, step, start, target, "
    "restarts, verdict, logits, labels",
    "cw-K": "the same up the CW loss, best other logit minus the true one",
    "apgd-ce": "APGD on cross-entropy; options: eps, steps, restarts, eot",
    "apgd-dlr": "APGD on the difference of logits ratio; options: eps, steps, restarts, eot",
    "apgd-t": "APGD on the targeted ratio, a round per target; options: eps, steps, targets, eot",
    "fab-t": "FAB towards each target; options: eps, steps, targets",
    "square": "random squares, without gradients; options: eps, queries, p, restarts",
    "deepfool": "across the nearest linearised boundary; options: eps, steps, targets, overshoot",
    "autoattack": "apgd-ce, apgd-t, fab-t and square on what is still standing; options: eps",
    "autoattack-rand": "apgd-ce and apgd-dlr with 20 passes each, for random models; options: eps",
    "suite(A,B,…)": "your own list, each attack on what is still standing; eps=… is for all",
}

_COUNT = Option(1, least=1)
_EPS = {"eps": Option(None, radius=True)}
_PGD = _EPS | {
    "step": Option(QUARTER, above=0, share=True),
    "start": Option("uniform", words=("none", "uniform")),
    "target": Option(None, words=("likely", "unlikely", "random"), least=0),
    "restarts": _COUNT,
    "logits": Option("classes", words=("classes", "all")),
    "labels": Option("given", words=("given", "predicted")),
    "verdict": Option("last", words=("last", "any")),
}
_APGD = _EPS | {"steps": Option(100, least=1), "restarts": _COUNT, "eot": _COUNT}
_TARGETS = Option(9, least=1)
_OPTIONS: dict[str, dict[str, Option]] = {
    "apgd-ce": _APGD,
    "apgd-dlr": _APGD,
    "apgd-t": _EPS | {"steps": Option(100, least=1), "targets": _TARGETS, "eot": _COUNT},
    "fab-t": _EPS | {"steps": Option(100, least=1), "targets": _TARGETS},
    "square": _EPS
    | {"queries": Option(5000, least=1), "p": Option(0.8, above=0), "restarts": _COUNT},
    "deepfool": _EPS
    | {
        "steps": Option(50, least=1),
        "targets": _TARGETS,
        "overshoot": Option(0.02, above=0),
    },
}
_MAKERS: dict[str, Callable[..., Search[Any]]] = {
    "apgd-ce": lambda name, **options: Apgd(name, "ce", **options),
    "apgd-dlr": lambda name, **options: Apgd(name, "dlr", **options),
    "apgd-t": lambda name, **options: Apgd(name, "dlr-t", **options),
    "fab-t": Fab,
    "square": Square,
    "deepfool": DeepFool,
}
_SUITES = {
    "autoattack": ("apgd-ce", "apgd-t", "fab-t", "square"),
    "autoattack-rand": ("apgd-ce(eot=20)", "apgd-dlr(eot=20)"),
}


def parse_attack(text: str) -> Condition:
    """Read one attack; its `name` is the one spelling of it, fit for a key.

    >>> parse_attack("pgd-20").name, parse_attack("pgd-20( verdict=any,step = 2/255)").name
    ('pgd-20', 'pgd-20(step=2/255,verdict=any)')
    >>> parse_attack("suite(apgd-ce, square(queries=5000), eps=4/255)").name
    'suite(apgd-ce,square,eps=4/255)'
    """
    own = re.fullmatch(r"\s*suite\s*\((.*)\)\s*", text, re.DOTALL)
    if own:
        return _suite(split_outside_brackets(own[1], ","), text)
    call = parse_call(text)
    if call.name == "clean":
        read_options(call, {})
        return NamedAttack("clean", 0, "none")
    if call.name == "fgsm" or call.name in _SUITES:
        eps = read_options(call, _EPS)["eps"]
        name = canonical(call.name, {"eps": eps}, _EPS)
        if call.name == "fgsm":
            return NamedAttack(name, 1, "none", step=Share(1), eps=eps)
        return Suite(name, _searches(_SUITES[call.name]), eps)
    if call.name in _MAKERS:
        values = read_options(call, _OPTIONS[call.name])
        name, eps = canonical(call.name, values, _OPTIONS[call.name]), values.pop("eps")
        return Suite(name, (_MAKERS[call.name](name, **values),), eps)
    match = re.fullmatch(r"(pgd|cw)-([1-9]\d*)", call.name)
    if match is None:
        raise unknown("attack", text, [*KNOWN_ATTACKS, "pgd-20", "cw-20"])
    return _pgd(call, "cw" if match[1] == "cw" else "ce", int(match[2]))


def parse_attacks(attacks: str | Sequence[Any]) -> list[Condition]:
    """Read a comma-separated list, or a list of names and attack objects; none may appear twice.

    >>> [attack.name for attack in parse_attacks("clean, suite(apgd-ce,square)")]
    ['clean', 'suite(apgd-ce,square)']
    """
    given = split_outside_brackets(attacks, ",") if isinstance(attacks, str) else attacks
    parsed = [
        parse_attack(one.strip()) if isinstance(one, str) else Foreign.of(one)
        for one in given
        if not isinstance(one, str) or one.strip()
    ]
    if not parsed:
        raise ClasswiseError(f"no attack given; known: {', '.join(KNOWN_ATTACKS)}")
    if len({attack.name for attack in parsed}) < len(parsed):
        raise ClasswiseError(f"an attack is named twice in {', '.join(a.name for a in parsed)}")
    return parsed


def _pgd(call: Call, loss: Literal["ce", "cw"], steps: int) -> Condition:
    values = read_options(call, _PGD)
    if values["target"] is not None and loss == "cw":
        raise ClasswiseError(f"{call.name} flees the label and takes no target; use pgd-{steps}")
    name, verdict = canonical(call.name, values, _PGD), values.pop("verdict")
    attack = NamedAttack(name, steps, loss=loss, **values)
    return attack if verdict == "last" else Suite(name, (attack.as_search(),), attack.eps)


def _suite(names: Sequence[str], text: str) -> Suite:
    radius = [name for name in names if re.match(r"\s*eps\s*=", name)]
    members = [name.strip() for name in names if name not in radius]
    if not any(members):
        raise ClasswiseError(f"{text} is empty; name its attacks, as in suite(apgd-ce,square)")
    values, searches = (
        read_options(parse_call(f"suite({','.join(radius)})"), _EPS),
        _searches(members),
    )
    stated = [canonical("", values, _EPS).strip("()")] if radius else []
    said = ",".join([*(search.name for search in searches), *stated])
    return Suite(f"suite({said})", searches, **values)


def _searches(names: Sequence[str]) -> tuple[Search[Any], ...]:
    """All attacks of a list; PGD enters with the verdict `any`."""
    found: list[Search[Any]] = []
    for name in names:
        attack = parse_attack(name)
        if attack.eps is not None:
            raise ClasswiseError(
                f"{attack.name} cannot have a radius of its own among others, who attack what it "
                "leaves standing; give one to them all, as in suite(apgd-ce,square,eps=8/255)"
            )
        if isinstance(attack, Suite):
            found += attack.searches
        else:
            assert isinstance(attack, NamedAttack)
            found.append(attack.as_search())
    if len({search.name for search in found}) < len(found):
        raise ClasswiseError(f"an attack is named twice in suite({','.join(names)})")
    return tuple(found)
