"""Attacks as people name them: `pgd-20(eps=4/255)`, `autoattack`, `suite(apgd-ce,square)`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from classwise.attacks.condition import Attack, Traits
from classwise.attacks.fixed_steps import FixedSteps
from classwise.attacks.options import Option, canonical, read_options, said_options
from classwise.attacks.search.apgd import Apgd
from classwise.attacks.search.deepfool import DeepFool
from classwise.attacks.search.engine import Search, only_asks
from classwise.attacks.search.fab import Fab
from classwise.attacks.search.square import Square
from classwise.attacks.search.suite import Suite
from classwise.attacks.smoothing import read_smoothed_pgd, read_smoothing
from classwise.errors import ClasswiseError, cut, unknown
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
    "smoothing": "the certified part of the model smoothed with Gaussian noise, L2 only; options: "
    "eps, sigma, n, alpha, n0",
    "smoothed-pgd-K": "PGD on the smoothed model, confirmed under fresh noise, L2 only; options: "
    "eps, sigma, n, alpha, m, step",
    "suite(A,B,…)": "your own list, each attack on what is still standing; eps=… is for all",
    "corruption:NAME-S": "one of the 19 common corruptions at severity 1 to 5, such as "
    "corruption:fog-3, also before an attack: corruption:fog-3>pgd-20; options: files",
    "module:Transform": "an image transform of your own, also before an attack: module:Blur>pgd-20",
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


# Options that do not make an attack weaker than its plain form.
_HARMLESS = {"eps", "verdict", "restarts", "eot", "queries"}
_FAMILIES = {"apgd-ce": "apgd", "apgd-dlr": "apgd", "apgd-t": "apgd", "fab-t": "fab"}


class Named(NamedTuple):
    """An attack, and the radius that its name states, if any."""

    attack: Attack
    eps: float | None = None


def parse_attack(text: str) -> Named:
    """Read one attack; its `name` is the one spelling of it, fit for a key.

    >>> parse_attack("pgd-20( verdict=any,step = 2/255)").attack.name
    'pgd-20(step=2/255,verdict=any)'
    >>> parse_attack("suite(apgd-ce, square(queries=5000), eps=4/255)").attack.name
    'suite(apgd-ce,square,eps=4/255)'
    """
    own = re.fullmatch(r"\s*suite\s*\((.*)\)\s*", text, re.DOTALL)
    if own:
        return _own_suite(split_outside_brackets(own[1], ","), text)
    call = parse_call(text)
    if call.name in _SUITES:
        values = read_options(call, _EPS)
        name, searches = canonical(call.name, values, _EPS), _searches(_SUITES[call.name])
        return Named(Suite(name, Traits("autoattack", 100), searches), values["eps"])
    if call.name == "fgsm":
        values = read_options(call, _EPS)
        name = canonical(call.name, values, _EPS)
        fgsm = FixedSteps(name, Traits("fgsm", 1), 1, "none", step=Share(1))
        return Named(fgsm, values["eps"])
    if call.name in _MAKERS:
        table = _OPTIONS[call.name]
        values = read_options(call, table)
        name, eps = canonical(call.name, values, table), values["eps"]
        traits = _traits(_FAMILIES.get(call.name, call.name), values.get("steps", 0), values, table)
        search = _MAKERS[call.name](name, **{k: v for k, v in values.items() if k != "eps"})
        return Named(Suite(name, traits, (search,)), eps)
    if call.name == "smoothing":
        return Named(*read_smoothing(call))
    match = re.fullmatch(r"(pgd|cw|smoothed-pgd)-([1-9][0-9]{0,8})", call.name)
    if call.name == "clean":
        raise ClasswiseError("clean is no attack; name it by itself, or leave it out here")
    if match is None:
        raise unknown("attack", text, [*KNOWN_ATTACKS, "pgd-20", "cw-20", "smoothed-pgd-20"])
    if match[1] == "smoothed-pgd":
        return Named(*read_smoothed_pgd(call, int(match[2])))
    return _pgd(call, match[1], int(match[2]))


def _traits(
    family: str, steps: float, values: Mapping[str, Any], table: Mapping[str, Option]
) -> Traits:
    said = said_options(values, table)
    others = [f"{option}={value}" for option, value in said.items() if option != "eps"]
    return Traits(family, steps, ",".join(others), weakened=bool(set(said) - _HARMLESS))


def _pgd(call: Call, loss: str, steps: int) -> Named:
    values = read_options(call, _PGD)
    if values["target"] is not None and loss == "cw":
        raise ClasswiseError(f"{call.name} flees the label and takes no target; use pgd-{steps}")
    return _pgd_with(loss, steps, values)


def make_pgd(steps: int, **options: Any) -> Attack:
    """PGD of so many steps, with options that were checked elsewhere.

    >>> make_pgd(10, step=2 / 255).name
    'pgd-10(step=2/255)'
    """
    parse_attack(f"pgd-{steps}")  # the number may be anything
    values = {name: option.default for name, option in _PGD.items()} | options
    return _pgd_with("pgd", steps, values).attack


def _pgd_with(loss: str, steps: int, values: dict[str, Any]) -> Named:
    aimed = values["target"] is not None
    name = canonical(f"{loss}-{steps}", values, _PGD)
    traits = _traits("pgd-targeted" if aimed else loss, steps, values, _PGD)
    eps, verdict = values.pop("eps"), values.pop("verdict")
    attack = FixedSteps(name, traits, steps, loss="cw" if loss == "cw" else "ce", **values)
    judged = attack if verdict == "last" else Suite(name, traits, (attack.as_search(),))
    return Named(judged, eps)


def _own_suite(names: Sequence[str], text: str) -> Named:
    radius = [name for name in names if re.match(r"\s*eps\s*=", name)]
    members = [name.strip() for name in names if name not in radius]
    if "clean" in members:
        raise ClasswiseError(
            f"{cut(text)}: clean is the images as they are, no attack; name it beside the suite: "
            f"clean,suite({','.join(n for n in members if n != 'clean') or 'apgd-ce,square'})"
        )
    if not any(members):
        raise ClasswiseError(f"{text} is empty; name its attacks, as in suite(apgd-ce,square)")
    values = read_options(parse_call(f"suite({','.join(radius)})"), _EPS)
    stated = [canonical("", values, _EPS).strip("()")] if radius else []
    return Named(make_suite(members, stated), values["eps"])


def make_suite(members: Sequence[str | Attack], stated: Sequence[str] = ()) -> Suite:
    """A suite of attacks, by their names or as they are; `stated` are options in its name.

    >>> make_suite(["apgd-ce", make_pgd(5)]).name
    'suite(apgd-ce,pgd-5)'
    """
    searches = _searches(members)
    said = [search.name for search in searches]
    family = "asking first" if only_asks(searches[0]) else "suite"
    traits = Traits(family, 0, ",".join(said))
    return Suite(f"suite({','.join([*said, *stated])})", traits, searches)


def _searches(members: Sequence[str | Attack]) -> tuple[Search[Any], ...]:
    """All attacks of a list; PGD enters with the verdict `any`."""
    found: list[Search[Any]] = []
    for one in members:
        attack, eps = parse_attack(one) if isinstance(one, str) else Named(one)
        if eps is not None:
            raise ClasswiseError(
                f"{attack.name} cannot have a radius of its own among others, who attack what it "
                "leaves standing; give one to them all, as in suite(apgd-ce,square,eps=8/255)"
            )
        if isinstance(attack, Suite):
            found += attack.searches
        elif isinstance(attack, FixedSteps):
            found.append(attack.as_search())
        else:
            raise ClasswiseError(
                f"{attack.name} is no search on the model itself and cannot stand in a suite; name "
                "it beside the suite"
            )
    if len({search.name for search in found}) < len(found):
        said = ",".join(search.name for search in found)
        raise ClasswiseError(f"an attack is named twice in suite({said})")
    return tuple(found)
