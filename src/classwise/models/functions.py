"""A plain function from images to logits as a model, told apart from one that makes a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from classwise.models import import_object
from classwise.spelling import parse_call

_OURS = ("num_classes", "channels")  # what a function that makes a model is offered


def function_of_images(spec: str) -> Callable[[Any], Any] | None:
    """The function that `module:function` names, if it takes images; None if it makes a model.

    It takes images if it is no class, no options are given, and exactly one of its parameters has
    no default and is neither `num_classes` nor `channels`.
    """
    call = parse_call(spec)
    if call.options or call.args:
        return None
    found = import_object(call.name)
    if isinstance(found, nn.Module | type) or not callable(found):
        return None
    return found if takes_images(found) else None


def takes_images(function: Callable[..., Any]) -> bool:
    """Whether a function wants one thing, and that is nothing a maker of models is offered.

    >>> takes_images(lambda images: images), takes_images(lambda num_classes: None)
    (True, False)
    """
    try:
        wanted = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in wanted if one.default is one.empty and one.kind in plain]
    return len(needed) == 1 and needed[0].name not in _OURS
