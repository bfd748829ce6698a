"""Laws of recipes: however a method is written down, it is one and the same."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from classwise.errors import ClasswiseError
from classwise.laws.made_up import Subject, must
from classwise.recipe import Recipe, compose
from classwise.recipe_text import make_method, modules_of, parse_recipe, read_recipe


def all_spellings_are_one_recipe(subject: Subject, folder: Path) -> None:
    """Python, a string, a TOML file and run.json spell the same recipe."""
    recipe, text = subject.recipe, subject.text
    file = folder / "recipe.toml"
    file.write_text(toml_of(recipe))
    card = json.loads(json.dumps(recipe.canonical))
    spelled = {
        "the string": parse_recipe(text),
        "the TOML file": read_recipe(file, imports=modules_of("+".join(card))),
        "run.json": compose(make_method(name, options) for name, options in card.items()),
    }
    for where, other in spelled.items():
        for what in ("methods", "canonical", "slots", "name"):
            one, two = getattr(recipe, what), getattr(other, what)
            must(one == two, f"{where} gives other {what}: {two} instead of {one}")
        must(other.explain() == recipe.explain(), f"{where} explains itself in another way")


def the_order_of_methods_does_not_matter(subject: Subject, folder: Path) -> None:  # noqa: ARG001
    """Methods compose in any order and any grouping."""
    expected = subject.recipe
    for methods in itertools.permutations([*subject.company, subject.recipe.given[-1]]):
        found = compose(methods)
        must(found == expected, f"{found.name} depends on the order of its methods")
        must(found.slots == expected.slots, f"the slots of {found.name} depend on the order")
        must(found.explain() == expected.explain(), f"{found.name} explains itself differently")
    again = compose(expected.methods)
    must(again == expected, "a recipe composed a second time is another one")
    must(again.slots == expected.slots, "a recipe composed a second time fills other slots")


def it_does_something(subject: Subject, folder: Path) -> None:  # noqa: ARG001
    """The method owns a slot or a class setting of its recipe."""
    owners = {owner for _, _, owner in subject.recipe.explain()}
    must(subject.method.name in owners, "it fills no slot and sets nothing")


def options_decide(subject: Subject, folder: Path) -> None:  # noqa: ARG001
    """Unknown options are refused, and those that are given are kept."""
    stray = "no_option_has_such_a_name"
    try:
        type(subject.method)(**{**subject.options, stray: 1})
    except ClasswiseError as reason:
        must(stray in str(reason), f"an unknown option is refused without its name: {reason}")
    else:
        must(False, "an unknown option is taken without a word")
    kept = subject.recipe.canonical[subject.method.name]
    for name, value in subject.method.model_dump(include=set(subject.options)).items():
        must(kept[name] == value, f"{name}={value!r} was given, but the recipe has {kept[name]!r}")


def toml_of(recipe: Recipe) -> str:
    """A recipe as a TOML file, with every option of every method."""
    lines = [f"compose = {json.dumps(' + '.join(recipe.canonical))}"]
    for name, options in recipe.canonical.items():
        lines.append(f"[{json.dumps(name)}]")
        lines += [f"{key} = {_toml(value)}" for key, value in options.items() if value is not None]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{json.dumps(str(key))} = {_toml(one)}" for key, one in value.items())
        return f"{{{inside}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(one) for one in value)}]"
    return json.dumps(value)  # numbers, words and truth values are written alike in both
