"""The axes of a block of runs: training options and METHOD.OPTION, each with all its values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from classwise.errors import ClasswiseError, cut, unknown
from classwise.spelling import is_plain, said_value
from classwise.training.config import TrainConfig

Settings: TypeAlias = dict[str, tuple[Any, ...]]  # name -> its values; one value is a setting

# What a study has other words for: seeds, and [watch].
_ELSEWHERE = {"seed": "seeds", "watch": "[watch]", "watch_every": "[watch]", "watch_share": ""}


def settings_of(table: Mapping[str, Any], beside: Iterable[str]) -> Settings:
    """Read the axes of a table; `beside` are the other keys that it could have had.

    >>> settings_of({"eps": ["2/255", "8/255"], "trades": {"beta": 6}}, ())
    {'eps': ('2/255', '8/255'), 'trades.beta': (6,)}
    """
    found: Settings = {}
    for name, value in table.items():
        if name in _ELSEWHERE:
            instead = f"write {_ELSEWHERE[name]} instead" if _ELSEWHERE[name] else "leave it out"
            raise ClasswiseError(f"{name} is no axis of a study; {instead}")
        if name in TrainConfig.model_fields or "." in name:
            found[name] = _values(name, value)
        elif isinstance(value, dict):  # trades.beta without quotes
            found |= {f"{name}.{option}": _values(option, one) for option, one in value.items()}
        else:
            known = {*beside, *TrainConfig.model_fields, "METHOD.OPTION"} - _ELSEWHERE.keys()
            raise unknown("option", name, known)
    return found


def _values(name: str, value: Any) -> tuple[Any, ...]:
    values = listed(value)
    if not values or not is_plain(list(values)):
        raise ClasswiseError(
            f"{name} is {cut(value)}; give a value, or a list of at least one for an axis (a list "
            "as a value stands in another: [[0.5, 0.75]])"
        )
    if len({said(one) for one in values}) < len(values):
        raise ClasswiseError(f"{name} has a value twice; name each once")
    return values


def listed(value: Any) -> tuple[Any, ...]:
    """A list as it is, and anything else as a list of one."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def said(value: Any) -> str:
    """A value as people read it on an axis.

    >>> said("8/255"), said(0.5), said(6), said(True), said([0.5, 0.75])
    ('8/255', '0.5', '6', 'true', '0.5, 0.75')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(said(one) for one in value)
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else said_value(value)


def seeds_of(value: Any) -> Any:
    """`3` is the seeds 0, 1 and 2; a list names them."""
    if isinstance(value, bool) or not isinstance(value, int | list | tuple):
        raise ClasswiseError(f"seeds is {cut(value)!r}; give their number, or a list of them")
    if isinstance(value, int):
        if not 1 <= value <= 1000:
            raise ClasswiseError(f"seeds is {value}; give a number from 1 to 1000")
        return tuple(range(value))
    if not value or len(set(value)) < len(value):
        raise ClasswiseError(f"seeds is {cut(value)}; give different seeds, at least one")
    return tuple(value)
