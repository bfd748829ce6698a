"""torch's optimisers, without the compiler that they import when they are first used."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

import torch
from torch.optim import Optimizer

Kind = TypeVar("Kind", bound=Optimizer)
_WRAPPED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def without_compiler(kind: type[Kind]) -> type[Kind]:
    """The same optimiser, whose methods are called as they are written.

    torch wraps them in what hides them from its compiler, and imports that for it: a second of
    every process, whether anything is compiled or not. We compile no optimiser. Where a method is
    not wrapped it is the same anyway.

    >>> without_compiler(torch.optim.SGD)([torch.zeros(1)], 0.1).__class__.__name__
    'SGD'
    """
    methods: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in _WRAPPED}
    methods["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), methods)
