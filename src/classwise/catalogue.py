"""What there is, for `classwise list`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import getdoc
from typing import Any, TypeAlias

Listing: TypeAlias = tuple[tuple[str, ...], Sequence[tuple[str, ...]]]


def _first_line(thing: Any) -> str:
    return (getdoc(thing) or "").splitlines()[0]


def methods() -> Listing:
    """Every method with its options and its paper."""
    from classwise.methods import METHODS

    rows: list[tuple[str, ...]] = [
        (name, _first_line(kind), ", ".join(kind.model_fields), kind.paper)
        for name, kind in METHODS.items()
    ]
    return ("method", "what it does", "options", "paper"), rows


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
