"""The tensors of a weights file, whoever wrote it; nothing in it is imported or evaluated.

A file may hold several sets of weights, such as those of a model and of its average. Which one is
meant is never guessed: `FILE@KEY` names it, as `RUN@best` does for a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from classwise.errors import ClasswiseError, unknown
from classwise.files import given_path
from classwise.models.pickled import unpickled
from classwise.record.tensors import PickleError, read_safetensors, under_prefix
from classwise.spelling import few_names

# Where people's files keep the weights, and those of their averages.
NESTS = (
    *("state_dict", "model", "net", "model_state_dict", "network", "weights", "params"),
    *("state_dict_ema", "model_ema", "ema", "ema_state_dict", "ema_model", "params_ema"),
)
_DEEPEST = 4  # mappings within mappings; each may hold itself under every name


def file_and_key(words: str | Path) -> tuple[Path, str]:
    """The file that is meant, and which of its sets of weights: `FILE` or `FILE@KEY`."""
    path = given_path(words)
    file, at, key = str(words).rpartition("@")
    if at and not path.exists() and given_path(file).is_file():
        return given_path(file), key
    return path, ""


def read_state_dict(path: Path, key: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors by name, and what a file of classwise says of them.

    Safetensors with or without our header, or what `torch.load(weights_only=True)` opens.
    """
    try:
        tensors, about = read_safetensors(path)
    except PickleError:
        return _chosen(unpickled(path), path, key), {}
    if about is not None and "network" not in about:
        raise ClasswiseError(f"{path} holds a training state, not weights; take one from weights/")
    if key:
        inside = under_prefix(key, tensors)
        if not inside:
            firsts = {name.partition(".")[0] for name in tensors}
            raise unknown(f"beginning of names in {path}", key, firsts)
        tensors = inside
    return tensors, about or {}


def _chosen(found: Any, path: Path, key: str) -> dict[str, Tensor]:
    """The one set of weights in a mapping, or the one under a key."""
    if key:
        found = _under(found, path, key)
    sets = _sets(found)
    if len(sets) > 1:
        raise ClasswiseError(
            f"{path} holds weights under {' and '.join(sets)}; say which are meant: "
            f"{path}@{list(sets)[-1]}"
        )
    if not sets:
        others = [name for name, inside in _mappings(found).items() if _sets(inside)]
        hint = f"it has some under {few_names(others)}: write {path}@{others[0]}" if others else ""
        raise ClasswiseError(
            f"{path} holds no tensors by name, nor under {', '.join(NESTS[:3])}; "
            + (hint or "save model.state_dict()")
        )
    return next(iter(sets.values()))


def _under(found: Any, path: Path, key: str) -> Any:
    """What stands under a key; `a.b` is b in a."""
    inside = _mappings(found)
    if key in inside:
        return inside[key]
    first, dot, rest = key.partition(".")
    if dot and first in inside:
        return _under(inside[first], path, rest)
    raise unknown(f"set of weights in {path}", key, inside or ["none"])


def _mappings(found: Any) -> dict[str, Mapping[Any, Any]]:
    if not isinstance(found, Mapping):
        return {}
    return {str(name): value for name, value in found.items() if isinstance(value, Mapping)}


def _sets(found: Any, depth: int = _DEEPEST) -> dict[str, dict[str, Tensor]]:
    """Sets of weights under usual names, by where they stand; else the tensors here."""
    if not isinstance(found, Mapping) or not depth:
        return {}
    sets = {}
    for key in NESTS:
        for where, tensors in _sets(found.get(key), depth - 1).items():
            sets[f"{key}.{where}" if where else key] = tensors
    here = {str(name): value for name, value in found.items() if _plain(value)}
    return sets or ({"": here} if here else {})


def _plain(value: Any) -> bool:
    """Whether something is a tensor with numbers of its own, one per entry."""
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return False
    return value.device.type == "cpu" and not value.is_quantized
