"""What a run was trained with, read back from its record; no code of a stranger is loaded."""

from __future__ import annotations

from classwise.errors import ClasswiseError
from classwise.methods import METHODS
from classwise.recipe import compose
from classwise.recipe_text import make_method
from classwise.slots import Slots
from classwise.studies.found import FoundRun, Hole


def slots_of(found: FoundRun) -> Slots:
    """What every slot of the training step held."""
    recipe = found.record().about.get("recipe", {})
    if not recipe:
        raise Hole("the record names no recipe")
    for name in recipe:
        if name not in METHODS:
            raise Hole(f"{name} is not part of classwise, and its code is not loaded for a table")
    try:
        return compose(make_method(name, options, ()) for name, options in recipe.items()).slots
    except ClasswiseError as reason:
        raise Hole(f"the recipe on record cannot be read: {reason}") from None


def epochs_of(found: FoundRun) -> int:
    """How many epochs the run was to have."""
    epochs = found.record().about.get("config", {}).get("epochs")
    if not isinstance(epochs, int):
        raise Hole("the record does not say how many epochs")
    return epochs
