"""What there is, for `classwise list`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from inspect import getdoc
from typing import TYPE_CHECKING, Any, TypeAlias

from classwise.errors import ClasswiseError

if TYPE_CHECKING:
    from classwise.recipe import Method, Recipe

Listing: TypeAlias = tuple[tuple[str, ...], Sequence[tuple[str, ...]]]


def _first_line(thing: Any) -> str:
    return (getdoc(thing) or "").splitlines()[0]


def methods() -> Listing:
    """Every method: one line, its paper, the slots it fills, and what it cannot stand beside.

    Installed ones are loaded here; one that cannot be says why in its line.
    """
    from classwise.foreign import installed, package_of
    from classwise.methods import METHODS
    from classwise.recipe_text import method_class

    kinds, broken = list(METHODS.values()), []
    for name, entries in installed().items():
        try:
            kinds.append(method_class(name))
        except ClasswiseError as reason:
            packages = ", ".join(package_of(entry) for entry in entries)
            broken.append((name, f"cannot be used: {reason}", "", "", packages))
    ready = [kind for kind in kinds if _together(kind, among=kinds)]  # others need options
    rows = [_method_row(kind, ready) for kind in kinds]
    own = ("module:Class", "your own method; see CONTRIBUTING.md", "", "", "")
    headings = ("method", "what it does", "fills the slots", "cannot be combined with", "from")
    return headings, [*rows, *broken, own]


def _method_row(kind: type[Method], among: Sequence[type[Method]]) -> tuple[str, ...]:
    recipe = _together(kind, among=among)
    if recipe is None:
        return (kind.name, _first_line(kind), "", "", kind.paper)
    filled = [slot for slot, owner in recipe.owners.items() if owner == kind.name]
    slots = sorted({s if s.startswith("class") else s.split()[0] for s in filled})
    others = [one for one in among if one is not kind]
    on = [kind] if kind.base else among
    apart = [one.name for one in others if _together(kind, one, among=on) is None]
    return (kind.name, _first_line(kind), ", ".join(slots), ", ".join(apart), kind.paper)


def _together(*kinds: type[Method], among: Sequence[type[Method]]) -> Recipe | None:
    """The methods in one recipe, on the first base that takes them all; None where none does."""
    from classwise.recipe import compose

    for base in (one for one in among if one.base):
        with contextlib.suppress(ClasswiseError):
            return compose(kind() for kind in dict.fromkeys([base, *kinds]))
    return None


def models() -> Listing:
    """Every built-in model."""
    from classwise.models import MODELS

    rows = [(name, _first_line(maker)) for name, maker in MODELS.items()]
    zoo = "needs pip install 'classwise[zoo]'"
    others = [
        ("timm:NAME", f"a model of timm; {zoo}"),
        ("torchvision:NAME", f"a classifier of torchvision; {zoo}"),
        ("hf:ORG/NAME", f"of the Hugging Face hub, or the folder of a snapshot; {zoo}"),
        ("module:callable", "your own torch model"),
    ]
    return ("model", "what it is"), [*rows, *others]


def attacks() -> Listing:
    """Every attack an audit can name."""
    from classwise.attacks.attack_names import KNOWN_ATTACKS

    rows: list[tuple[str, ...]] = [(name, words) for name, words in KNOWN_ATTACKS.items()]
    return ("attack", "what it does"), rows


def data() -> Listing:
    """Every data source."""
    from classwise.data.sources import FROM_DATA, FROM_NAMES, FROM_PATH, NAMED

    rows = [(name, _first_line(opener)) for name, opener in NAMED.items()]
    rows += [
        (f"{kind}:PATH", _first_line(opener))
        for kind, opener in FROM_PATH.items()
        if kind not in NAMED
    ]
    made = {**FROM_DATA, **FROM_NAMES}
    rows += [(f"{kind}(NAME, ...)", _first_line(maker)) for kind, maker in made.items()]
    return ("data", "what it is"), rows


CATALOGUE: dict[str, Callable[[], Listing]] = {
    "methods": methods,
    "models": models,
    "attacks": attacks,
    "data": data,
}
