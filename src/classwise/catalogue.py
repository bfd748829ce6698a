"""What there is, for `classwise list`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from inspect import getdoc
from typing import TYPE_CHECKING, Any, TypeAlias

from classwise.errors import ClasswiseError

if TYPE_CHECKING:
    from classwise.recipe import Recipe

Listing: TypeAlias = tuple[tuple[str, ...], Sequence[tuple[str, ...]]]


def _first_line(thing: Any) -> str:
    return (getdoc(thing) or "").splitlines()[0]


def methods() -> Listing:
    """Every method: one line, its paper, the slots it fills, and what it cannot stand beside."""
    from classwise.methods import METHODS

    rows = []
    for name, kind in METHODS.items():
        recipe = _together(name)
        filled = [slot for slot, owner in recipe.owners.items() if owner == name] if recipe else []
        slots = sorted({s if s.startswith("class") else s.split()[0] for s in filled})
        others = [other for other in METHODS if other != name and not METHODS[other].base]
        if kind.base:
            apart = [
                "other bases",
                *(n for n in others if _together(name, n, bases=[name]) is None),
            ]
        else:
            apart = [n for n in METHODS if n != name and _together(name, n) is None]
        rows.append((name, _first_line(kind), ", ".join(slots), ", ".join(apart), kind.paper))
    return ("method", "what it does", "fills", "not with", "paper"), rows


def _together(*names: str, bases: Sequence[str] = ()) -> Recipe | None:
    """The methods in one recipe, on the first base that takes them all; None where none does."""
    from classwise.methods import METHODS
    from classwise.recipe import compose

    tried = bases or [name for name, kind in METHODS.items() if kind.base]
    for base in tried:
        with contextlib.suppress(ClasswiseError):
            return compose(METHODS[name]() for name in dict.fromkeys([base, *names]))
    return None


def models() -> Listing:
    """Every built-in model."""
    from classwise.models import MODELS

    rows = [(name, _first_line(maker)) for name, maker in MODELS.items()]
    return ("model", "what it is"), [*rows, ("module:callable", "your own torch model")]


def attacks() -> Listing:
    """Every attack an audit can name."""
    from classwise.attacks.named import KNOWN_ATTACKS

    rows: list[tuple[str, ...]] = [(name, words) for name, words in KNOWN_ATTACKS.items()]
    return ("attack", "what it does"), rows


def data() -> Listing:
    """Every data source."""
    from classwise.data.sources import FROM_DATA, FROM_PATH, NAMED

    rows = [(name, _first_line(opener)) for name, opener in NAMED.items()]
    rows += [
        (f"{kind}:PATH", _first_line(opener))
        for kind, opener in FROM_PATH.items()
        if kind not in NAMED
    ]
    rows += [(f"{kind}(NAME, ...)", _first_line(maker)) for kind, maker in FROM_DATA.items()]
    return ("data", "what it is"), rows


CATALOGUE: dict[str, Callable[[], Listing]] = {
    "methods": methods,
    "models": models,
    "attacks": attacks,
    "data": data,
}
