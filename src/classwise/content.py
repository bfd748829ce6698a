"""Everything that decides what an object computes, as one hash.

A model is more than its weights: a kernel size, a function it was given, a constant beside its
class. All of that is followed, through the user's own code. Code that comes with Python or torch
is known by its name, and that of other installed packages by its source.
"""

from __future__ import annotations

import argparse
import contextlib
import dis
import functools
import hashlib
import inspect
import logging
import re
import sys
import sysconfig
import types
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

_NAMED = {
    *sys.stdlib_module_names,
    "torch",
    "torchvision",
    "timm",
    "transformers",
    "numpy",
    "scipy",
}
_STDLIB = sysconfig.get_path("stdlib")
_OWN = set(vars(nn.Module()))  # what torch keeps in every module
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_BAGS = (argparse.Namespace, types.SimpleNamespace)  # Python's own, but their content is not
_DEEP = 10_000  # how far one thing may lead to the next


def content_of(value: Any) -> bytes:
    """A hash of what a value computes with; the mode and the device do not count.

    >>> content_of([1, torch.zeros(2)]) == content_of([1, torch.zeros(2)])
    True
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _DEEP))
    try:
        return _Walk().of(value)
    finally:
        sys.setrecursionlimit(before)


class _Walk:
    """One walk: everything is hashed once, and a cycle ends where it began."""

    def __init__(self) -> None:
        self.done: dict[int, tuple[bytes, Any]] = {}  # the object too, or its id could return
        self.path: set[int] = set()

    def of(self, value: Any) -> bytes:
        """The hash of a value from those of its parts; plain values are their own."""
        if isinstance(value, _PLAIN):
            return repr(value).encode()
        if id(value) in self.done:
            return self.done[id(value)][0]
        if id(value) in self.path:
            return b"cycle"
        self.path.add(id(value))
        digest = hashlib.blake2b(digest_size=16)
        for part in _parts(value):
            found = part if isinstance(part, bytes) else self.of(part)
            digest.update(len(found).to_bytes(8, "big"))
            digest.update(found)
        self.path.remove(id(value))
        self.done[id(value)] = digest.digest(), value
        return digest.digest()


def _parts(value: Any) -> list[Any]:
    """What a value is made of, one level deep."""
    match value:
        case Tensor():
            return list(tensor_bytes(value))
        case np.ndarray() if value.dtype != object:
            return [f"{value.dtype}{value.shape}", np.ascontiguousarray(value).tobytes()]
        case dict():
            return ["dict", *(part for pair in value.items() for part in pair)]
        case set() | frozenset():
            return ["set", *sorted(value, key=repr)]
        case list() | tuple() | np.ndarray():
            return [type(value).__name__, *value]
        case torch.jit.ScriptModule():
            return _script(value)
        case torch.jit.ScriptFunction():
            return ["script", value.code]
        case nn.Module():
            return _module(value)
        case functools.partial():
            return ["partial", value.func, value.args, value.keywords]
        case types.MethodType():
            return ["method", value.__self__, value.__func__]
        case types.FunctionType():
            return _function(value)
        case type():
            return _class(value)
        case types.ModuleType():
            return ["python module", value.__name__]
        case torch.device():
            return ["device"]
        case logging.Logger():
            return ["logger", value.name]
        case _:
            return _object(value)


def _module(module: nn.Module) -> list[Any]:
    inside = module._modules.get("_orig_mod")
    if inside is not None and type(module).__name__ == "OptimizedModule":
        return [inside]  # torch.compile keeps the model, and numbers of its own
    own = {key: value for key, value in vars(module).items() if key not in _OWN}
    # torch numbers hooks over the whole process, so their keys say nothing
    hooks = {kind: list(getattr(module, kind).values()) for kind in _HOOKS}
    tensors = {**module._parameters, **module._buffers}
    rest = sorted({**own, **hooks, **tensors}.items())
    return [
        "module",
        type(module),
        dict(module._modules),
        *(part for pair in rest for part in pair),
    ]


def _script(compiled: Any) -> list[Any]:
    """Compiled code with its constants, the attributes it reads, and the weights."""
    found: list[Any] = ["script", dict(compiled.state_dict())]
    for part in compiled.modules():
        if not hasattr(part, "code"):  # a part without a forward of its own
            continue
        code, constants = part.code_with_constants
        found += [code, dict(constants.const_mapping)]
        read = sorted(set(re.findall(r"self\.(\w+)", code)))
        held = {name: getattr(part, name, None) for name in read}
        found += [(name, one) for name, one in held.items() if isinstance(one, _PLAIN)]
    return found


def _class(kind: type) -> list[Any]:
    found: list[Any] = ["class"]
    for base in kind.__mro__:
        found.append(_full_name(base))
        if _origin(base) == "installed":
            found.append(_source(base))
        elif _origin(base) == "own":
            held = {key: _unwrapped(value) for key, value in vars(base).items()}
            for key, value in sorted(held.items()):
                if isinstance(value, types.FunctionType) or not key.startswith("__"):
                    found += [key, value]
    return found


def _function(function: types.FunctionType) -> list[Any]:
    found: list[Any] = ["function", _full_name(function)]
    if _origin(function) == "named":
        return found
    found += [_source(function), function.__defaults__, function.__kwdefaults__]
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            found.append("not filled yet")
    if _origin(function) == "own":
        # what it finds by name beside it
        looked_up = sorted(set(_global_names(function.__code__)))
        names = set(_all_names(function.__code__))
        for name in looked_up:
            if name in function.__globals__:
                found += [name, _used(function.__globals__[name], names, ())]
    return found


def _used(value: Any, names: set[str], through: tuple[Any, ...]) -> Any:
    """Of a module of the user's only what is named, also in modules inside it."""
    if not isinstance(value, types.ModuleType) or _origin(value) != "own" or value in through:
        return value
    named = sorted(names & set(vars(value)))
    return {name: _used(vars(value)[name], names, (*through, value)) for name in named}


def _object(value: Any) -> list[Any]:
    """An object of any other kind: what it holds, or what it says of itself."""
    kind = type(value)
    if isinstance(value, functools._lru_cache_wrapper):
        return ["cached", value.__wrapped__]
    if _origin(kind) != "named" or isinstance(value, _BAGS):
        slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
        held = dict(getattr(value, "__dict__", {}))
        for name in slots:
            with contextlib.suppress(Exception):  # a slot may be empty, or its getter broken
                held[name] = getattr(value, name)
        return ["object", kind, *(part for pair in sorted(held.items()) for part in pair)]
    try:
        said = str(getattr(value, "__qualname__", None) or repr(value))  # a function in C
    except Exception:  # whatever a stranger's repr may do
        said = ""
    return ["object", _full_name(kind), "" if " at 0x" in said else said]


def tensor_bytes(tensor: Tensor) -> Iterator[bytes]:
    """Kind, shape and content of a tensor, wherever it lies."""
    yield f"{tensor.dtype}:{tuple(tensor.shape)}".encode()
    whole = tensor.detach().cpu().contiguous().reshape(-1)
    yield whole.view(torch.uint8).numpy().tobytes()


def _unwrapped(value: Any) -> Any:
    """A function out of what a class wraps it in."""
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    if isinstance(value, property):
        return value.fget
    return value.func if isinstance(value, functools.cached_property) else value


def _global_names(code: types.CodeType) -> Iterator[str]:
    """Names that code looks up outside itself, those of its inner functions included."""
    yield from (str(one.argval) for one in dis.get_instructions(code) if "GLOBAL" in one.opname)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _all_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _all_names(constant)


def _source(thing: Any) -> Any:
    """Source; compiled code of a lambda, whose line may hold others, and where there is no file."""
    if getattr(thing, "__name__", "") == "<lambda>":
        return _compiled(thing.__code__)
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):
        return _compiled(thing.__code__) if isinstance(thing, types.FunctionType) else ""


def _compiled(code: types.CodeType) -> list[Any]:
    constants = [
        _compiled(one) if isinstance(one, types.CodeType) else one for one in code.co_consts
    ]
    return [code.co_code, list(code.co_names), constants]


def _origin(thing: Any) -> Literal["named", "installed", "own"]:
    """Whether a class, function or module comes with Python or torch, is installed, or is ours."""
    where = thing.__name__ if isinstance(thing, types.ModuleType) else thing.__module__
    top = (where or "builtins").split(".")[0]
    file = getattr(sys.modules.get(where or ""), "__file__", None) or ""
    installed = "site-packages" in file or "dist-packages" in file
    if top in _NAMED and (installed or not file or file.startswith(_STDLIB)):
        return "named"
    return "installed" if installed and top != "classwise" else "own"


def _full_name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
