"""Methods of other people: a class named `module:Class`, or one that a package installs.

A package lists its methods in the entry-point group `classwise.methods`; they are then named like
built-in ones. What is installed is read from metadata: nothing is imported until it is named.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from classwise.errors import ClasswiseError

GROUP = "classwise.methods"
_NOT_FOLLOWED = {*sys.stdlib_module_names, "pydantic", "torch", "numpy"}  # versions of their own


def is_foreign(kind: type) -> bool:
    """Whether a class is defined outside this package."""
    return kind.__module__.partition(".")[0] != "classwise"


def installed() -> Mapping[str, tuple[EntryPoint, ...]]:
    """The entry points of our group by name; more than one where packages disagree."""
    return _installed(tuple(sys.path))


@functools.cache
def _installed(path: tuple[str, ...]) -> Mapping[str, tuple[EntryPoint, ...]]:  # noqa: ARG001
    found: dict[str, dict[str, EntryPoint]] = {}
    for entry in entry_points(group=GROUP):
        found.setdefault(entry.name, {}).setdefault(entry.value, entry)
    return {name: tuple(entries.values()) for name, entries in sorted(found.items())}


def package_of(entry: EntryPoint) -> str:
    """The name of the package that brings an entry point."""
    return entry.dist.name if entry.dist else entry.module.partition(".")[0]


def load_installed(entry: EntryPoint) -> Any:
    """Import what an entry point leads to."""
    try:
        return entry.load()
    except Exception as reason:  # whatever a stranger's module may raise
        words = " ".join(f"{type(reason).__name__}: {reason}".split())
        raise ClasswiseError(
            f"the method {entry.name} of the package {package_of(entry)} cannot be loaded from "
            f"{entry.value} ({words}); repair or remove the package"
        ) from reason


def recipe_name(kind: type, given: str | None, taken: Collection[str]) -> str:
    """What recipes call a method's class: the name it is installed under, or `module:Class`.

    `given` is the name that the class itself declares; `taken` are those that it cannot have.
    """
    module, spelled = kind.__module__, f"{kind.__module__}:{kind.__qualname__}"
    free = {name: entries for name, entries in installed().items() if name not in taken}
    for name, entries in free.items():
        for entry in entries:
            itself = f"{entry.module}:{entry.attr}" == spelled
            # A package may list a class under another of its modules than the one it is made in.
            sibling = entry.module.partition(".")[0] == module.partition(".")[0]
            if (itself and given in (None, name)) or (sibling and given == name):
                return name
    return spelled


def source_hash(things: Iterable[Any]) -> str | None:
    """Sixteen hex digits over the code that foreign classes and functions come from.

    That is the source of their modules, and of the modules beside them which those import. None
    where nothing is foreign or no source is to be had, as for what is typed into a prompt.
    """
    names = {kind.__module__ for thing in things for kind in _kinds(thing) if is_foreign(kind)}
    texts: dict[str, str] = {}
    waiting = sorted(name for name in names if name.partition(".")[0] not in _NOT_FOLLOWED)
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        if name in texts or module is None:
            continue
        try:
            texts[name] = inspect.getsource(module)
        except (OSError, TypeError):
            continue
        waiting += _imported_beside(module, texts[name])
    if not texts:
        return None
    whole = "\0".join(f"{name}\0{texts[name]}" for name in sorted(texts))
    return hashlib.blake2b(whole.encode(), digest_size=8).hexdigest()


def _kinds(thing: Any) -> tuple[Any, ...]:
    """The classes that an object is made by; a function stands for itself."""
    if inspect.isfunction(thing):
        return (thing,)
    return (thing if isinstance(thing, type) else type(thing)).__mro__


def _imported_beside(module: ModuleType, text: str) -> Iterator[str]:
    """Loaded modules that a source imports from its own package or its own folder."""
    home = Path(module.__file__ or "").parent
    package = (module.__package__ or "").split(".")
    top = module.__name__.partition(".")[0]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join(filter(None, [*above, node.module or ""]))
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            file = getattr(sys.modules.get(name), "__file__", None)
            if file and (name.partition(".")[0] == top or Path(file).parent == home):
                yield name
