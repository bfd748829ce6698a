"""The tensors of a weights file, whoever wrote it; nothing in it is imported or evaluated."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from classwise.errors import ClasswiseError
from classwise.record.tensors import PickleError, read_safetensors
from classwise.spelling import few_names

_WRAPPERS = re.compile(r"^((module|_orig_mod)\.)+")  # DataParallel's and torch.compile's
NESTS = ("state_dict", "model", "net")  # where people's files keep the weights


def read_state_dict(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors by name, and what a file of classwise says of them.

    Safetensors with or without our header, or what `torch.load(weights_only=True)` opens.
    """
    try:
        tensors, about = read_safetensors(path)
    except PickleError:
        return _unpickled(path), {}
    if about is not None and "network" not in about:
        raise ClasswiseError(f"{path} holds a training state, not weights; take one from weights/")
    return tensors, about or {}


def load_whole(model: nn.Module, path: Path) -> None:
    """Give a model the weights of a file, all of them and nothing else."""
    tensors, _ = read_state_dict(path)
    wanted = model.state_dict()
    found = unwrapped(tensors, wanted)
    wrong = [n for n, value in found.items() if n in wanted and value.shape != wanted[n].shape]
    for words, names in (
        ("lacks", sorted(set(wanted) - set(found))),
        ("holds what the model has not", sorted(set(found) - set(wanted))),
        ("has other shapes of", wrong),
    ):
        if names:
            raise ClasswiseError(
                f"{path} is of another model: it {words}: {few_names(names, 4)}; give the weights "
                "of this model, or the model of these weights"
            )
    model.load_state_dict(found)


def unwrapped(tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors without the prefixes of wrappers, unless the model has such names itself."""
    found = {name: tensor for name, tensor in tensors.items() if name in wanted}
    for name, tensor in tensors.items():
        bare = _WRAPPERS.sub("", name)
        if name not in found:
            found[name if bare in found else bare] = tensor
    return found


def _unpickled(path: Path) -> dict[str, Tensor]:
    _refuse_packed(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch on old formats
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as reason:  # a stranger's file: whatever is wrong with it, it is refused
        words = " ".join(str(reason).split())[:120]
        raise ClasswiseError(
            f"{path} holds more than tensors, or is damaged, and was not opened ({words}); save "
            "model.state_dict() alone"
        ) from None
    found = _innermost(found, path)
    if not found:
        raise ClasswiseError(
            f"{path} holds no tensors by name, nor under {', '.join(NESTS)}; save "
            "model.state_dict()"
        )
    return found


def _refuse_packed(path: Path) -> None:
    """Refuse an archive that would unpack to more than it is: torch never compresses its own."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except Exception as reason:  # an archive that claims to be one may break in any way
        raise ClasswiseError(
            f"{path} is damaged: its list of contents cannot be read ({reason}); restore it from a "
            "copy, or make it again"
        ) from None
    packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
    if packed or sum(member.file_size for member in members) > path.stat().st_size:
        raise ClasswiseError(
            f"{path} is compressed, which torch.save never does, and could fill the memory; save "
            "model.state_dict() with torch.save"
        )


def _innermost(found: Any, path: Path, depth: int = 8) -> dict[str, Tensor]:
    """The tensors of a mapping, or of the one mapping with tensors under a usual name in it."""
    if not isinstance(found, Mapping) or not depth:
        return {}
    inside = {key: _innermost(found[key], path, depth - 1) for key in NESTS if key in found}
    full = {key: tensors for key, tensors in inside.items() if tensors}
    if len(full) > 1:
        raise ClasswiseError(
            f"{path} holds weights under {' and '.join(full)}; save one of them alone"
        )
    if full:
        return next(iter(full.values()))
    return {str(name): value for name, value in found.items() if _plain(value)}


def _plain(value: Any) -> bool:
    """Whether something is a tensor with numbers of its own, one per entry."""
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return False
    return value.device.type == "cpu" and not value.is_quantized
