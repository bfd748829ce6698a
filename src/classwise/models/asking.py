"""Ask a model about images: in its mode, a few at a time, with answers that are checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from classwise.errors import ClasswiseError
from classwise.types import Images, LogitModel, Logits

BatchNormMode: TypeAlias = Literal["train", "eval", "batch"]
_STILL = "_statistics_stay"  # on BatchNorm layers of a part that does not train


def ask(model: LogitModel, images: Images, width: int, num_classes: int | None = None) -> Logits:
    """Logits of many images, `width` at a time, checked for shape and for NaN."""
    parts = [images.new_empty(0, num_classes)] if num_classes else []
    for part in torch.split(images, width) if len(images) else ():
        with torch.no_grad():
            logits = model(part)
        check_logits(logits, len(part), num_classes)
        parts.append(logits)
    return torch.cat(parts)


def check_logits(logits: Any, count: int, num_classes: int | None) -> None:
    """Refuse outputs that are not finite logits of `num_classes` classes."""
    if not isinstance(logits, Tensor):
        raise ClasswiseError(_no_logits(logits, num_classes))
    shape = tuple(logits.shape)
    if num_classes and len(shape) == 2 and shape[0] == count and shape[1] != num_classes:
        raise ClasswiseError(
            f"the model gives {shape[1]} outputs, but there are {num_classes} classes; it must "
            f"return logits of shape ({count}, {num_classes}): give it data of {shape[1]} classes, "
            "or as many class names as it has outputs"
        )
    if len(shape) != 2 or shape[0] != count or shape[1] != (num_classes or shape[1]):
        wanted = f"({count}, {num_classes})" if num_classes else f"({count}, K)"
        known = f", but there are {num_classes} classes" if num_classes else ""
        raise ClasswiseError(
            f"the model gave {shape} for {count} images{known}; "
            f"it must return logits of shape {wanted}"
        )
    if not bool(torch.isfinite(logits).all()):
        raise ClasswiseError("the model's logits contain NaN or infinity; check its weights")


def _no_logits(answer: Any, num_classes: int | None) -> str:
    """What a model gave in the place of logits, and what to do about it."""
    kind = type(answer).__name__
    if isinstance(answer, Mapping):
        got = f"a {kind} with {', '.join(map(str, list(answer)[:5]))}"
    elif isinstance(answer, tuple | list):
        got = f"a {kind} of {len(answer)}"
    else:
        return f"the model gave a {kind}; it must return logits of shape (n, {num_classes or 'K'})"
    return (
        f"the model gave {got}, and nobody can tell which of it are the logits; wrap it in a torch "
        f"module whose forward returns these alone, of shape (n, {num_classes or 'K'})"
    )


def eval_mode(model: LogitModel) -> AbstractContextManager[None]:
    """Put a module in eval mode for a while; a function has none."""
    return batchnorm_mode(model, "eval") if isinstance(model, nn.Module) else nullcontext()


def hold_statistics(norm: nn.Module) -> None:
    """Keep a BatchNorm layer in eval mode for good: frozen parts stay the same function."""
    setattr(norm, _STILL, True)


def set_training(model: nn.Module, training: bool) -> None:
    """Put a model in train or eval mode, except for layers whose statistics are held."""
    model.train(training)
    for part in model.modules():
        if getattr(part, _STILL, False):
            part.eval()


@contextmanager
def batchnorm_mode(model: nn.Module, mode: BatchNormMode) -> Iterator[None]:
    """Put a model in the mode an attack or audit wants, and back again whatever happens.

    `train`: batch statistics, running ones move (the released AT code). `eval`: running
    statistics. `batch`: batch statistics, running ones stay as they are. Layers whose statistics
    are held use their running ones in every mode.
    """
    before = [(part, part.training) for part in model.modules()]
    tracking = [
        (part, part.track_running_stats)
        for part in model.modules()
        if isinstance(part, nn.modules.batchnorm._BatchNorm)
    ]
    try:
        set_training(model, mode != "eval")
        if mode == "batch":
            for part, _ in tracking:
                part.track_running_stats = False
        yield
    finally:
        for part, was_tracking in tracking:
            part.track_running_stats = was_tracking
        for module, was_training in before:
            module.training = was_training
