"""Everything that decides what an object computes, as bytes to be hashed.

A model is more than its weights: a kernel size, a function it was given, a constant beside its
class. All of that is followed, through the user's own code. Code that comes with Python or torch
is known by its name, and that of other installed packages by its source.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

_NAMED = {*sys.stdlib_module_names, "torch", "torchvision", "timm", "numpy", "scipy"}
_OWN = set(vars(nn.Module()))  # what torch keeps in every module
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def content_of(value: Any) -> Iterator[bytes]:
    """What a value computes with, piece by piece; the mode and the device do not count.

    >>> b"".join(content_of({"b": 2, "a": (1, "x")}))
    b"{'a':(1,'x',),'b':2,}"
    """
    return _Walk().of(value)


class _Walk:
    """One walk: code and modules are written once, and a cycle ends where it began."""

    def __init__(self) -> None:
        self.written: dict[int, tuple[int, Any]] = {}  # the object too, or its id could return
        self.path: set[int] = set()

    def of(self, value: Any) -> Iterator[bytes]:
        if isinstance(value, _PLAIN):
            yield repr(value).encode()
        elif isinstance(value, Tensor):
            yield from tensor_bytes(value)
        elif id(value) in self.written:
            yield f"#{self.written[id(value)][0]}".encode()
        elif id(value) in self.path:
            yield b"cycle"
        elif isinstance(value, nn.Module | types.FunctionType | type):
            self.written[id(value)] = len(self.written), value
            yield from self._known(value)
        else:
            self.path.add(id(value))
            yield from self._held(value)
            self.path.remove(id(value))

    def _known(self, value: nn.Module | types.FunctionType | type) -> Iterator[bytes]:
        if isinstance(value, nn.Module):
            yield from self._module(value)
        elif isinstance(value, type):
            yield from self._class(value)
        else:
            yield from self._function(value)

    def _held(self, value: Any) -> Iterator[bytes]:
        match value:
            case np.ndarray() if value.dtype != object:
                yield f"{value.dtype}{value.shape}".encode()
                yield np.ascontiguousarray(value).tobytes()
            case dict():
                yield b"{"
                for key in sorted(value, key=repr):
                    yield from self._pair(key, value[key])
                yield b"}"
            case set() | frozenset():
                yield from self._all(sorted(value, key=repr))
            case list() | tuple() | np.ndarray():
                yield from self._all(value)
            case functools.partial():
                yield from self._all((value.func, value.args, value.keywords))
            case types.MethodType():
                yield from self._all((value.__self__, value.__func__))
            case types.ModuleType():
                yield value.__name__.encode()
            case torch.device():
                yield b"device"
            case _:
                yield from self._object(value)

    def _pair(self, key: Any, value: Any) -> Iterator[bytes]:
        yield from self.of(key)
        yield b":"
        yield from self.of(value)
        yield b","

    def _all(self, values: Iterable[Any]) -> Iterator[bytes]:
        yield b"("
        for one in values:
            yield from self.of(one)
            yield b","
        yield b")"

    def _module(self, module: nn.Module) -> Iterator[bytes]:
        if isinstance(module, torch.jit.ScriptModule):
            code = [getattr(part, "code", "") for part in module.modules()]  # calls show no insides
            yield from self._all((code, dict(module.state_dict())))
            return
        yield from self.of(type(module))
        own = {key: value for key, value in vars(module).items() if key not in _OWN}
        # torch numbers hooks over the whole process, so their keys say nothing
        hooks = {kind: list(getattr(module, kind).values()) for kind in _HOOKS}
        parts = {**module._parameters, **module._buffers, **module._modules}
        for key, value in sorted({**own, **hooks, **parts}.items()):
            yield from self._pair(key, value)

    def _class(self, kind: type) -> Iterator[bytes]:
        for base in kind.__mro__:
            yield _full_name(base).encode()
            if _origin(base) == "installed":
                yield _source(base)
            elif _origin(base) == "own":
                held = {key: _unwrapped(value) for key, value in vars(base).items()}
                for key, value in sorted(held.items()):
                    if isinstance(value, types.FunctionType) or not key.startswith("__"):
                        yield from self._pair(key, value)

    def _function(self, function: types.FunctionType) -> Iterator[bytes]:
        yield _full_name(function).encode()
        if _origin(function) == "named":
            return
        yield _source(function)
        yield from self._all((function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            try:
                yield from self.of(cell.cell_contents)
            except ValueError:
                yield b"not filled yet"
        if _origin(function) == "own":
            yield from self._mentioned(function)

    def _mentioned(self, function: types.FunctionType) -> Iterator[bytes]:
        """What a function finds by name beside it, and in modules of the user's that it uses."""
        for name in sorted(set(_global_names(function.__code__))):
            found = function.__globals__.get(name)
            if isinstance(found, types.ModuleType) and _origin(found) == "own":
                used = sorted(set(_all_names(function.__code__)) & set(vars(found)))
                yield from self._pair(name, {one: vars(found)[one] for one in used})
            elif found is not None:
                yield from self._pair(name, found)

    def _object(self, value: Any) -> Iterator[bytes]:
        """An object of any other kind: what it holds, or what it says of itself."""
        kind = type(value)
        yield from self.of(kind)
        slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
        held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
        held |= getattr(value, "__dict__", {})
        if _origin(kind) == "installed":  # loggers and caches hold what changes by itself
            held = {name: one for name, one in held.items() if isinstance(one, (*_PLAIN, Tensor))}
        said = str(
            getattr(value, "__qualname__", None) or repr(value)
        )  # a compiled function's name
        if held and _origin(kind) != "named":
            yield from self.of(held)
        elif " at 0x" not in said:
            yield said.encode()


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


def _source(thing: Any) -> bytes:
    """Source; compiled code of a lambda, whose line may hold others, and where there is no file."""
    if getattr(thing, "__name__", "") == "<lambda>":
        return _compiled(thing.__code__)
    try:
        return inspect.getsource(thing).encode()
    except (OSError, TypeError):
        return _compiled(thing.__code__) if isinstance(thing, types.FunctionType) else b""


def _compiled(code: types.CodeType) -> bytes:
    inner = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    constants = [one for one in code.co_consts if not isinstance(one, types.CodeType)]
    own = code.co_code + repr((code.co_names, constants)).encode()
    return own + b"".join(_compiled(one) for one in inner)


def _origin(thing: Any) -> Literal["named", "installed", "own"]:
    """Whether a class, function or module comes with Python or torch, is installed, or is ours."""
    where = thing.__name__ if isinstance(thing, types.ModuleType) else thing.__module__
    top = (where or "builtins").split(".")[0]
    if top in _NAMED:
        return "named"
    file = getattr(sys.modules.get(where or ""), "__file__", None) or ""
    installed = "site-packages" in file or "dist-packages" in file
    return "installed" if installed and top != "classwise" else "own"


def _full_name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
