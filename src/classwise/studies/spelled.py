"""A recipe as text that can be read again: what a job carries to another process or machine."""

from __future__ import annotations

from classwise.errors import ClasswiseError
from classwise.recipe import Method, Recipe
from classwise.recipe_text import parse_recipe


def spell_recipe(recipe: Recipe, imports: tuple[str, ...] = ()) -> str:
    """Write a recipe with every option that somebody gave it, and make sure that it is the same.

    >>> spell_recipe(parse_recipe("ccm + trades(beta=2, step=eps/8)"))
    'ccm+trades(beta=2.0, step=eps/8)'
    """
    text = "+".join(_call(method) for method in recipe.given)
    if parse_recipe(text, imports=imports).canonical != recipe.canonical:
        raise ClasswiseError(f"{text} is read as another recipe; give its options as plain values")
    return text


def _call(method: Method) -> str:
    names = [name for name in type(method).model_fields if name in method.model_fields_set]
    inside = ", ".join(f"{name}={getattr(method, name)!r}" for name in names)
    return f"{method.name}({inside})" if inside else method.name
