"""Conditions as an audit names them: `clean`, `pgd-20`, `corruption:fog-3>pgd-20`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from classwise.attacks.attack_names import KNOWN_ATTACKS, parse_attack
from classwise.attacks.ball import L2_BALL
from classwise.attacks.condition import Attack, Condition, Traits
from classwise.attacks.corruption import (
    PREFIX,
    Corruption,
    PublishedCorruption,
    parse_corruption,
)
from classwise.attacks.options import read_options
from classwise.attacks.other_libraries import Foreign
from classwise.attacks.shift import OwnTransform, is_transform, spelled
from classwise.attacks.smoothing import check_ball
from classwise.attacks.threat import Threat
from classwise.errors import ClasswiseError, unknown
from classwise.models import import_object
from classwise.spelling import parse_call, parse_eps, split_outside_brackets

# `pgd-10 on 200`; what stands inside brackets is no number of images
_ON = re.compile(r"(?P<condition>.*?)(?:^|\s)on\s+(?P<many>[^\s()<>]+)\s*", re.DOTALL)


def parse_condition(text: str, threat: Threat, seed: int = 0, *, own: bool = False) -> Condition:
    """Read one condition: `clean`, an attack, a corruption or transform, or that and an attack.

    `own` allows `module:Transform`, which is imported, and corruptions read from files: only for
    what the user wrote just now.

    >>> parse_condition("pgd-20(eps=4/255)", Threat.of("8/255")).threat.radius == 4 / 255
    True
    """
    if _ON.fullmatch(text):
        raise ClasswiseError(
            f"{text}: a condition has images of its own, as in pgd-10 on 200, only where an audit "
            "names its attacks; leave the number out here"
        )
    first, *rest = split_outside_brackets(text, ">")
    if len(rest) > 1:
        raise ClasswiseError(f"{text}: write at most one transform and one attack, as A>pgd-20")
    call = first.strip()
    if rest or ":" in call.partition("(")[0]:
        made_here = call.startswith(PREFIX)
        shift = parse_corruption(call, own=own) if made_here else _own_thing(call, own)
        if isinstance(shift, Foreign):
            if rest:
                raise ClasswiseError(f"{text}: only an image transform can come before an attack")
            return _under(shift, threat, seed)
        if not rest:
            return Condition(shift, None, None, seed)
        attack, eps = parse_attack(rest[0].strip())
        return Condition(shift, attack, _threat(threat, attack, eps), seed)
    if call.partition("(")[0].strip() == "clean":
        read_options(parse_call(call), {})
        return Condition()
    attack, eps = parse_attack(call)
    return Condition(None, attack, _threat(threat, attack, eps), seed)


def parse_conditions(
    attacks: str | Sequence[Any], threat: Threat, seed: int = 0, *, own: bool = True
) -> tuple[Condition, ...]:
    """Read a comma-separated list, or a list of names, attack objects, transforms and conditions.

    None may appear twice. `own` also allows a number of images, as in `pgd-10 on 200`.

    >>> [one.name for one in parse_conditions("clean, suite(apgd-ce,square)", Threat.of(0.1))]
    ['clean', 'suite(apgd-ce,square)']
    """
    given = split_outside_brackets(attacks, ",") if isinstance(attacks, str) else attacks
    parsed = tuple(
        _parse_limited(one.strip(), threat, seed, own)
        if isinstance(one, str)
        else _given(one, threat, seed)
        for one in given
        if not isinstance(one, str) or one.strip()
    )
    if not parsed:
        raise ClasswiseError(f"no attack given; known: {', '.join(KNOWN_ATTACKS)}")
    if len({one.name for one in parsed}) < len(parsed):
        raise ClasswiseError(f"an attack is named twice in {', '.join(a.name for a in parsed)}")
    return parsed


def _parse_limited(text: str, threat: Threat, seed: int, own: bool) -> Condition:
    """Read one condition, and the number of images that it is for."""
    said = _ON.fullmatch(text) if own else None
    if said is None:
        return parse_condition(text, threat, seed, own=own)
    name, many = said["condition"].strip(), said["many"]
    if not name:
        raise ClasswiseError(f"{text!r}: name what is asked about them, as in pgd-10 on {many}")
    if not re.fullmatch("[1-9][0-9]{0,17}", many):
        raise ClasswiseError(
            f"{text}: give a whole number of images from 1 up, as in {name} on 200, or leave it out"
        )
    return replace(parse_condition(name, threat, seed, own=own), limit=int(many))


def known_condition(one: Any) -> Condition | None:
    """The condition that something is: one that was parsed, or an attack object of ours."""
    found = one if isinstance(one, Condition) else getattr(one, "condition", None)
    return found if isinstance(found, Condition) else None


def asked_for(attacks: str | Sequence[Any]) -> tuple[str | Condition, ...]:
    """What somebody asks a record for: names as they are written, and conditions.

    Names are not read: a record may call a condition what only it knows, as `pgd-20 eps=8/255`.

    >>> asked_for("clean, pgd-20(eps=4/255,steps=2)")
    ('clean', 'pgd-20(eps=4/255,steps=2)')
    """
    given = split_outside_brackets(attacks, ",") if isinstance(attacks, str) else attacks
    found: list[str | Condition] = []
    for one in given:
        wanted = one.strip() if isinstance(one, str) else known_condition(one)
        if wanted is None:
            raise ClasswiseError(
                f"{type(one).__name__} is no condition that a record knows again; give its name, "
                "an attack object of classwise, or a parsed condition"
            )
        found += [wanted] if wanted else []
    return tuple(found)


def check_made_for(attacks: str | Sequence[Any], model: Any) -> None:
    """Refuse attack objects of ours that would not be used as they were made.

    An audit attacks its own model, and asks it as the audit says.
    """
    objects: Sequence[Any] = () if isinstance(attacks, str) else attacks
    for one in objects:
        if isinstance(one, Condition) or known_condition(one) is None:
            continue
        same = one.model is model or (isinstance(model, str) and one.model == model)
        if not same:
            raise ClasswiseError(
                f"{one!r} was made for another model, and an audit attacks the one it is given; "
                "make it for that one, or give its name"
            )
        if one.asked:
            raise ClasswiseError(
                f"{one!r} has {' and '.join(f'{key}=' for key in one.asked)} of its own, and an "
                "audit asks the model in one way; say it to the audit instead"
            )


def named_condition(text: str) -> tuple[str, float | None]:
    """The one spelling of a condition, and the radius that it states; nothing is imported.

    >>> named_condition("pgd-10( eps = 8/255)")[0]
    'pgd-10(eps=8/255)'
    """
    threat = Threat(L2_BALL, 0.0)  # under which any radius may be meant
    found = parse_condition(text, threat)
    own = found.threat is not None and found.threat is not threat
    return found.name, found.threat.widest if own and found.threat else None


def traits_named(name: str) -> tuple[str, Traits]:
    """Kind and traits of a condition whose record has its name alone, as old ones do."""
    if name == "clean":
        return "clean", Traits("clean")
    try:
        attack = parse_attack(name).attack
        return Condition(None, attack).kind, attack.traits
    except ClasswiseError:
        return "attack", Traits("other")


def _given(one: Any, threat: Threat, seed: int) -> Condition:
    """What a list of attacks may hold beside names."""
    known = known_condition(one)
    if known is not None:
        return known
    if isinstance(one, Corruption | PublishedCorruption):
        return Condition(one, None, None, seed)
    if isinstance(one, type):
        raise ClasswiseError(f"{one.__name__} is a class; make an object of it, {one.__name__}(…)")
    return (
        Condition(OwnTransform.of(one), None, None, seed)
        if is_transform(one)
        else _under(Foreign.of(one), threat, seed)
    )


def _own_thing(text: str, own: bool) -> OwnTransform | Foreign:
    """Import what the user named: a transform, or an attack of their own."""
    call = parse_call(text)
    if ":" not in call.name:
        raise unknown("transform", text, ["corruption:NAME-SEVERITY", "module:Transform"])
    if not own:
        raise ClasswiseError(
            f"{call.name} is code of its own; name it with classwise audit --attacks, or give the "
            "object to classwise.audit"
        )
    if call.args:
        raise ClasswiseError(f"{text}: name the options, as in {call.name}(option=value)")
    found = import_object(call.name)
    if isinstance(found, type) or call.options:
        try:
            found = found(**call.options)
        except TypeError as reason:
            raise ClasswiseError(f"{text}: {reason}") from None
    if not is_transform(found):
        return Foreign.of(found)
    name = spelled(found)
    lost = [k for k in call.options if k not in getattr(found, "__dict__", {})]
    return OwnTransform.of(found, text.replace(" ", "") if lost else name)


def _under(attack: Attack, threat: Threat, seed: int) -> Condition:
    return Condition(None, attack, threat, seed)


def _threat(threat: Threat, attack: Attack, eps: float | None) -> Threat:
    """The threat of all, or the one of an attack that states its radius."""
    if eps is not None:
        threat = Threat(threat.ball, parse_eps(eps, threat.ball.too_wide))
    check_ball(attack, threat)
    return threat
