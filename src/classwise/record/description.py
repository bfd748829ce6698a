"""What a run.json, a shard or a weights file says of its data, checked before it is believed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from classwise.data.labels import check_class_names, check_superclasses
from classwise.errors import ClasswiseError, cut

# What each entry must be, where it is there at all.
_KINDS: dict[str, type] = {
    **{"identity": str, "recipe_name": str},
    **{"recipe": dict, "config": dict, "network": dict, "versions": dict},
}


def check_description(found: Any, where: object) -> dict[str, Any]:
    """Refuse a description with other kinds of values than ours, or with absurdly many classes.

    >>> check_description({"data": {"class_names": ["cat", "dog"]}}, "run.json")["data"]
    {'class_names': ['cat', 'dog']}
    >>> check_description({"data": {"class_names": 3}}, "run.json")
    Traceback (most recent call last):
    classwise.errors.ClasswiseError: run.json: class_names is 3, not a list of words; write it anew
    """
    data = found.get("data") if isinstance(found, dict) else None
    if not isinstance(data, dict) or data.get("class_names", []) == []:
        raise ClasswiseError(f"{where} does not describe a run: it names no classes")
    names = _all(str, data, "class_names", where)
    above = _all(int, data, "superclass_of", where)
    words = _all(str, data, "superclass_names", where)
    try:
        check_class_names(names or ())
        check_superclasses(len(names or ()), above, words)
    except ClasswiseError as reason:
        raise ClasswiseError(f"{where}: {reason}") from None
    return dict(found)


def check_run(found: Any, where: object) -> dict[str, Any]:
    """The same for a run.json, which says more."""
    about = check_description(found, where)
    for key, kind in _KINDS.items():
        if key in about and not isinstance(about[key], kind):
            raise _other(where, key, about[key], "a word" if kind is str else "a table")
    for name, options in about.get("recipe", {}).items():
        if not isinstance(options, dict):
            raise _other(where, f"recipe.{cut(name, 50)}", options, "a table")
    return about


def made_with(about: Mapping[str, Any]) -> str:
    """The versions and the threads that a run was trained with; older runs say no threads.

    >>> made_with({"versions": {"torch": "2.13", "classwise": "1.0"}, "threads": 2})
    'classwise 1.0, torch 2.13, 2 threads'
    """
    words = [f"{name} {number}" for name, number in sorted(about.get("versions", {}).items())]
    threads = about.get("threads")
    if type(threads) is int:
        words.append(f"{threads} thread{'s' if threads != 1 else ''}")
    return ", ".join(words)


def _all(kind: type, data: dict[str, Any], key: str, where: object) -> tuple[Any, ...] | None:
    value = data.get(key)
    if value is None and key != "class_names":
        return None
    if not isinstance(value, list | tuple) or not all(type(one) is kind for one in value):
        raise _other(where, key, value, f"a list of {'words' if kind is str else 'whole numbers'}")
    return tuple(value)


def _other(where: object, key: str, value: Any, wanted: str) -> ClasswiseError:
    return ClasswiseError(f"{where}: {key} is {cut(repr(value), 50)}, not {wanted}; write it anew")
