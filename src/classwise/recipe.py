"""A recipe: one value per slot of the training step, composed from methods.

A method is a bundle over slots, so papers combine: `trades(beta=6) | ccm()` in Python,
`trades(beta=6)+ccm` as a string, or a TOML table per method. Every slot and every class
setting has one owner; since owners never overlap, the order of composition does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from classwise.classes.settings import Chain
from classwise.errors import ClasswiseError, unknown
from classwise.foreign import is_foreign, recipe_name
from classwise.script import Script
from classwise.sense import check_sense
from classwise.slots import ATTACK_SLOTS, COLLECTIONS, UNFILLED, Slots
from classwise.spelling import spell_call, spell_value


class Method(BaseModel):
    """A paper's method: its options, and the slots it fills with them."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True)

    name: ClassVar[str]  # what recipes call it; one that is not installed is `module:Class`
    paper: ClassVar[str] = ""
    base: ClassVar[bool] = False  # brings an objective; a recipe has exactly one such method
    extends: ClassVar[frozenset[str]] = frozenset()  # methods whose slots it may take over
    implies: ClassVar[str | None] = None  # base to add where a recipe has none
    baselines: ClassVar[frozenset[str]] = frozenset()  # recipes that its script trains besides

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Give a foreign method the one name by which any recipe can find it again."""
        super().__pydantic_init_subclass__(**kwargs)
        if is_foreign(cls):
            from classwise.methods import METHODS

            cls.name = recipe_name(cls, vars(cls).get("name"), METHODS)

    def __init__(self, **options: Any) -> None:
        known = type(self).model_fields
        for option in options:
            if option not in known:
                raise unknown(f"option of {self.name}", option, known or ["none"])
        try:
            super().__init__(**options)
        except ValidationError as reason:
            first = reason.errors()[0]
            where = ".".join(str(part) for part in first["loc"][:1])
            raise ClasswiseError(
                f"{self.name}({where}={first['input']!r}): {first['msg'].lower()}"
            ) from None

    def resolve(self, among: Among) -> Method:  # noqa: ARG002
        """Return the method with the defaults that depend on its company filled in."""
        return self

    def suggests(self, among: Among) -> Script | None:  # noqa: ARG002
        """Return what its released script trains with, beside this company; None without one."""
        return None

    def fill(self) -> Slots:
        """Return what the (resolved) method puts into the slots."""
        raise NotImplementedError

    def __or__(self, other: Method | Recipe) -> Recipe:
        return Recipe((self,)) | other


@dataclass(frozen=True, slots=True)
class Among:
    """What a method may know of its company when it chooses its defaults."""

    given: Mapping[str, Method]

    @property
    def names(self) -> frozenset[str]:
        """Names of all the methods."""
        return frozenset(self.given)

    @property
    def base(self) -> Method | None:
        """The method that brings the objective."""
        return next((method for method in self.given.values() if method.base), None)

    def option(self, name: str, option: str) -> Any:
        """Return what a method's option says; None where the method is not there."""
        return getattr(self.given.get(name), option, None)

    def check_left(self, owner: str, options: Iterable[str]) -> None:
        """Refuse options of the base that were changed, though `owner` brings its own."""
        base = self.base
        if base is None:
            return
        known = type(base).model_fields
        for option in (one for one in options if one in known):
            value = getattr(base, option)
            if value != known[option].default:
                raise ClasswiseError(
                    f"{base.name}({option}={value!r}) would do nothing, since {owner} has its own; "
                    f"leave it out, and see the options of {owner}"
                )

    def first(self, table: Mapping[str, Any], otherwise: Any) -> Any:
        """Return the entry of the first method in the table that is present."""
        return next((value for name, value in table.items() if name in self.names), otherwise)


@dataclass(frozen=True, eq=False)
class Recipe:
    """Methods put together; what each slot holds follows from all of them.

    The methods are kept as they were given: defaults that depend on the company are filled in
    only when the whole company is known, so that any order and grouping gives the same recipe.
    """

    given: tuple[Method, ...]

    def __or__(self, other: Method | Recipe) -> Recipe:
        whole = Recipe((*self.given, *methods_of(other)))
        if any(method.base for method in whole.given):
            whole.check()  # clashes are told at once; without a base it is a part of a recipe yet
        return whole

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self.methods == other.methods

    def __hash__(self) -> int:
        return hash(self.name)

    def check(self) -> Recipe:
        """Refuse what clashes or makes no sense; return the recipe itself."""
        _ = self._whole
        return self

    @cached_property
    def _whole(self) -> tuple[tuple[Method, ...], Slots, dict[str, str]]:
        given = _with_base(self.given)
        among = Among({method.name: method for method in given})
        resolved = sorted((m.resolve(among) for m in given), key=lambda m: (not m.base, m.name))
        slots, owners = _merge(resolved)
        check_sense(slots, owners)
        return tuple(resolved), slots, owners

    @property
    def company(self) -> list[Method]:
        """The methods as given, with the base that one of them implies."""
        return _with_base(self.given)

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods with all their defaults filled in; the base first, then by name."""
        return self._whole[0]

    @property
    def slots(self) -> Slots:
        """What every slot holds."""
        return self._whole[1]

    @property
    def owners(self) -> Mapping[str, str]:
        """Which method filled a slot, or sets `class margin` and the like."""
        return self._whole[2]

    @property
    def name(self) -> str:
        """The short spelling, such as `trades+ccm+ema`."""
        return "+".join(method.name for method in self.methods)

    @property
    def spelled(self) -> str:
        """The short spelling with the options that were given, such as `trades(beta=3)+ccm`."""
        given = {method.name: method for method in self.company}
        return "+".join(_spelled(given[method.name]) for method in self.methods)

    @property
    def attacks(self) -> bool:
        """Whether training perturbs its images."""
        return self.slots.reference is not None

    @property
    def canonical(self) -> dict[str, dict[str, Any]]:
        """Every option of every method: what enters a run's identity."""
        return {method.name: method.model_dump() for method in self.methods}

    def explain(self) -> list[tuple[str, str, str]]:
        """Rows of (slot, value, owner)."""
        rows: list[tuple[str, str, str]] = []
        for slot in fields(self.slots):
            value = getattr(self.slots, slot.name)
            if slot.name == "policies":
                rows += [
                    (f"class {setting}", str(policy), self.owners[f"class {setting}"])
                    for policy in value
                    for setting in sorted(policy.writes)
                ]
            elif slot.name in COLLECTIONS:
                rows += [
                    (slot.name, str(item), self.owners.get(f"{slot.name} {item.name}", "-"))
                    for item in value or UNFILLED.get(slot.name, ())
                ]
            elif value is not None or (
                slot.name in UNFILLED and (self.attacks or slot.name not in ATTACK_SLOTS)
            ):
                shown = UNFILLED[slot.name] if value is None else value
                rows.append((slot.name, spell_value(shown), self.owners.get(slot.name, "-")))
        return rows


def _spelled(method: Method) -> str:
    known = type(method).model_fields
    return spell_call(method.name, {k: v for k, v in method if v != known[k].default})


def compose(methods: Iterable[Method]) -> Recipe:
    """Merge methods into one recipe; two owners of one thing are refused by name."""
    return Recipe(tuple(methods)).check()


def _with_base(given: tuple[Method, ...]) -> list[Method]:
    """The methods, and the base that one of them implies where none was named."""
    from classwise.methods import METHODS  # the table of names sits after this file on the walk

    methods = list(given)
    for method in methods:
        if sum(other.name == method.name for other in methods) > 1:
            raise ClasswiseError(f"{method.name} appears twice; name each method once")
    if not any(method.base for method in methods):
        implied = {method.implies for method in methods if method.implies}
        if len(implied) != 1:
            bases = ", ".join(name for name, kind in METHODS.items() if kind.base)
            names = "+".join(method.name for method in methods)
            raise ClasswiseError(f"{names} has no training loss; add one of {bases}")
        base = implied.pop()
        if base not in METHODS:
            raise unknown("base that a method implies", base, METHODS)
        methods.append(METHODS[base]())
    return methods


def _merge(methods: list[Method]) -> tuple[Slots, dict[str, str]]:
    merged: dict[str, Any] = dict.fromkeys(COLLECTIONS, ())
    owners: dict[str, str] = {}
    replaceable = {method.name: method.extends for method in methods}

    def claim(thing: str, words: str, name: str) -> bool:
        """Note the owner; false where another method rightly took this over before."""
        holder = owners.get(thing)
        if holder is not None and name in replaceable[holder]:
            return False
        if holder is not None and holder not in replaceable[name]:
            raise ClasswiseError(f"{holder} and {name} both set {words}; keep one of them")
        owners[thing] = name
        return True

    for method in methods:
        brought = _brought_by(method)
        for slot in fields(brought):
            value = getattr(brought, slot.name)
            if slot.name == "policies":
                for policy in value:
                    for setting in sorted(policy.writes):
                        claim(f"class {setting}", f"the class setting {setting!r}", method.name)
                merged["policies"] += value
            elif slot.name in COLLECTIONS:
                for item in value:
                    words = f"the {slot.name[:-1]} {item.name!r}"
                    claim(f"{slot.name} {item.name}", words, method.name)
                merged[slot.name] += value
            elif value is not None and claim(slot.name, f"the slot {slot.name!r}", method.name):
                merged[slot.name] = value
    Chain(merged["policies"])
    return Slots(**merged), owners


def _brought_by(method: Method) -> Slots:
    """What a method fills; one that was not written out is refused by name."""
    try:
        brought = method.fill()
    except NotImplementedError:
        brought = None
    if not isinstance(brought, Slots):
        raise ClasswiseError(
            f"{method.name} does not say what it fills; give it a method fill(self) that returns "
            "classwise.Slots(...)"
        )
    Chain(brought.policies)  # refuses what is no policy
    return brought


def methods_of(thing: Method | Recipe) -> list[Method]:
    """The methods of a recipe as they were given; a method is a recipe of one."""
    return list(thing.given) if isinstance(thing, Recipe) else [thing]
