"""What may stand in an attack's brackets, and the one way to write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from classwise.errors import ClasswiseError, unknown
from classwise.limits import LARGEST_NUMBER
from classwise.spelling import Call, Share, parse_eps


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its default, and what else it may be.

    Words are allowed as they are, whole numbers from `least` to `most`, other numbers strictly
    between `above` and `below`, with `share` also a share of eps. A `radius` is any that some norm
    allows. Numbers that are `plain` are no grey levels, and not written as such.
    """

    default: Any
    words: Sequence[str] = ()
    least: int | None = None
    most: int = LARGEST_NUMBER
    above: float | None = None
    below: float = 1.0
    share: bool = False
    radius: bool = False
    plain: bool = False

    def read(self, value: Any, where: str) -> Any:
        """Check a value, or say what would be allowed."""
        if value is None and "none" in self.words:
            return "none"  # the grammar reads the word none as None
        if self.radius:
            return parse_eps(value, inf)  # where the norm is known, the radius is read again
        if self.share and isinstance(value, Share):
            return value
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if isinstance(value, str) and value in self.words:
            return value
        whole = number and (isinstance(value, int) or value.is_integer())
        if whole and self.least is not None and self.least <= value <= self.most:
            return int(value)
        if number and self.above is not None and self.above < value < self.below:
            return float(value) if self.plain else value
        if isinstance(value, str) and self.words and self.least is None:
            raise unknown(where, value, self.words)
        allowed = list(self.words)
        if self.least is not None:
            end = "on" if self.most == LARGEST_NUMBER else f"to {self.most}"
            allowed.append(f"a whole number from {self.least} {end}")
        if self.above is not None:
            some = f"{self.default:g}" if self.plain else "2/255"
            allowed.append(f"a number between {self.above:g} and {self.below:g}, such as {some}")
        if self.share:
            allowed.append("a share of the radius, such as eps/4")
        raise ClasswiseError(f"{where} is {value!r}; give {' or '.join(allowed)}")


def read_options(call: Call, table: Mapping[str, Option]) -> dict[str, Any]:
    """All options of a call, those not given by their defaults."""
    for name in call.options:
        if name not in table:
            raise unknown(f"option of {call.name}", name, table or ["none"])
    if call.args:
        given = ", ".join(map(str, call.args))
        raise ClasswiseError(f"{call.name}({given}): write option=value in the brackets")
    return {
        name: option.read(call.options[name], f"{name} of {call.name}")
        if name in call.options
        else option.default
        for name, option in table.items()
    }


def canonical(name: str, values: Mapping[str, Any], table: Mapping[str, Option]) -> str:
    """The one spelling of an attack: options that are not the default, in the table's order.

    >>> table = {"step": Option(None, above=0), "start": Option("uniform", words=["none"])}
    >>> canonical("pgd-20", {"start": "uniform", "step": 2 / 255}, table)
    'pgd-20(step=2/255)'
    """
    said = [f"{option}={value}" for option, value in said_options(values, table).items()]
    return f"{name}({','.join(said)})" if said else name


def said_options(values: Mapping[str, Any], table: Mapping[str, Option]) -> dict[str, str]:
    """Options that are not the default, as they are written, in the table's order."""
    return {
        option: _plain(values[option]) if table[option].plain else _written(values[option])
        for option in table
        if values[option] != table[option].default
    }


def _written(value: Any) -> str:
    if isinstance(value, float) and value < 1:
        levels = value * 255
        return f"{round(levels)}/255" if abs(levels - round(levels)) < 1e-9 else repr(value)
    return str(value)


def _plain(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
