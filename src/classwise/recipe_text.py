"""Recipes as people write them: `trades(beta=6)+ccm`, a TOML file, or `at+module:Class`.

Whoever types a name may have it imported. A file is a stranger's word: what it names beyond the
methods that are built in or installed is imported only if the user names the module, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from classwise.errors import ClasswiseError, unknown
from classwise.files import given_path
from classwise.foreign import installed, load_installed, package_of
from classwise.methods import METHODS
from classwise.models import import_object
from classwise.recipe import Method, Recipe, compose, methods_of
from classwise.spelling import Call, parse_call, parse_value, split_outside_brackets
from classwise.texts import parse_toml, read_text


def make_method(
    name: str, options: Mapping[str, Any], imports: Collection[str] | None = None
) -> Method:
    """Make a method by its name: a built-in one, an installed one, or `module:Class`.

    `imports` are the modules that may be imported; None where the name is the user's own word.
    """
    return method_class(name, imports)(**options)


def method_class(name: str, imports: Collection[str] | None = None) -> type[Method]:
    """Find the class of a method; `imports` as for `make_method`."""
    if ":" in name:
        module = name.partition(":")[0]
        if imports is not None and module not in imports:
            raise ClasswiseError(
                f"{name} is code of its own, and only you can say that it may run; if you trust "
                f'it, add --import {module} (in Python: imports=("{module}",))'
            )
        return _checked(import_object(name), name)
    entries = installed().get(name, ())
    if not entries:
        if name not in METHODS:
            raise unknown("method", name, [*METHODS, *installed(), "module:Class"])
        return METHODS[name]
    packages = " and ".join(package_of(entry) for entry in entries)
    if name in METHODS:
        raise ClasswiseError(
            f"{name} is built in, but {packages} installs a method of that name, too; remove that "
            "package, or ask its authors for another name"
        )
    if len(entries) > 1:
        raise ClasswiseError(
            f"{name} is installed by {packages}; write the one you mean as "
            f"{' or '.join(entry.value for entry in entries)}"
        )
    kind = _checked(load_installed(entries[0]), entries[0].value)
    if kind.name != name:
        raise ClasswiseError(
            f"{packages} installs {entries[0].value} as {name}, but it calls itself {kind.name}; "
            "its authors must give it one name"
        )
    return kind


def _checked(found: Any, name: str) -> type[Method]:
    if not (isinstance(found, type) and issubclass(found, Method)) or found is Method:
        what = f"the class {found.__name__}" if isinstance(found, type) else type(found).__name__
        raise ClasswiseError(
            f"{name} is no method but {what}; a method is a subclass of classwise.Method"
        )
    return found


def calls_of(text: str) -> list[Call]:
    """The methods that a recipe names, with their options; nothing is looked up yet."""
    calls = [parse_call(part) for part in split_outside_brackets(text, "+")]
    for call in calls:
        if call.args:
            raise ClasswiseError(f"{call.name}: name the options, as in {call.name}(option=value)")
        if sum(other.name == call.name for other in calls) > 1:
            raise ClasswiseError(f"{call.name} appears twice; name each method once")
    return calls


def modules_of(text: str) -> tuple[str, ...]:
    """The modules that a recipe would have imported.

    >>> modules_of("at+mypackage.boost:Boost(rate=0.3)+ema")
    ('mypackage.boost',)
    """
    return tuple(call.name.partition(":")[0] for call in calls_of(text) if ":" in call.name)


def parse_recipe(
    text: str,
    settings: Mapping[str, Any] | None = None,
    imports: Collection[str] | None = None,
) -> Recipe:
    """Read `trades(beta=6)+ccm`; `settings` are pairs such as `ccm.margin_floor` and its value.

    `imports` are the modules that may be imported; None where the text is the user's own word.

    >>> parse_recipe("ccm + trades").name
    'trades+ccm'
    """
    options = {call.name: dict(call.options) for call in calls_of(text)}
    for key, value in (settings or {}).items():
        name, _, option = key.rpartition(".")  # the last dot: a module's name may have some
        if name not in options:
            raise ClasswiseError(
                f"--set {key}: write METHOD.OPTION=VALUE with a method of {'+'.join(options)}"
            )
        options[name][option] = parse_value(value) if isinstance(value, str) else value
    return compose(make_method(name, chosen, imports) for name, chosen in options.items())


def read_recipe(
    path: str | Path,
    settings: Mapping[str, Any] | None = None,
    imports: Collection[str] = (),
) -> Recipe:
    """Read a TOML file: `compose = "trades + ccm"` and one table of options per method.

    `settings` win over the file. `imports` are the modules that it may have imported.
    """
    content, text = _table_of(path)
    chosen: dict[str, Any] = {}
    for name, table in content.items():
        if not isinstance(table, dict):
            raise ClasswiseError(f"{path}: {name!r} is not a table; write [{name}] and its options")
        for option, value in table.items():
            word = isinstance(value, str)
            chosen[f"{name}.{option}"] = parse_value(value) if word else value
    if imports:  # before what it names is looked for
        _check_used(imports, text, path)
    try:
        found = parse_recipe(text, chosen, imports)
    except ClasswiseError as reason:  # all of it stands in the file
        raise ClasswiseError(f"{path}: {reason}") from None
    return parse_recipe(text, chosen | dict(settings), imports) if settings else found


def _table_of(path: str | Path) -> tuple[dict[str, Any], str]:
    """What a recipe file holds, and its line `compose`."""
    try:
        content = parse_toml(read_text(given_path(path)), path)
    except OSError as reason:
        raise ClasswiseError(f"cannot read the recipe {path}: {reason}") from None
    text = content.pop("compose", None)
    if not isinstance(text, str):
        raise ClasswiseError(f'{path} needs a line such as compose = "trades + ccm"')
    return content, text


def load_recipe(
    recipe: str | Path | Recipe | Method,
    settings: Mapping[str, Any] | None = None,
    imports: Collection[str] = (),
) -> Recipe:
    """Take a recipe in any of its spellings; a string ending in .toml is a file.

    `imports` are the modules that a file may have imported: `load_recipe("mine.toml",
    imports=("mypackage.boost",))`. A string is the user's own word and needs no such leave.
    """
    if isinstance(recipe, Recipe | Method):
        return compose(methods_of(recipe))
    if str(recipe).endswith(".toml"):
        return read_recipe(recipe, settings, imports)
    _check_used(imports, str(recipe), recipe)
    return parse_recipe(str(recipe), settings)


def _check_used(imports: Collection[str], text: str, where: str | Path) -> None:
    if stray := sorted(set(imports) - set(modules_of(text))):
        raise ClasswiseError(
            f"--import {stray[0]}: {where} names no class of that module; leave it out"
        )
