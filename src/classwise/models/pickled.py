"""Weights in pickles of torch: opened as tensors alone, so that nothing in them is run."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from classwise.errors import ClasswiseError, cut
from classwise.texts import parse_json, read_text

WEIGHTS = "pytorch_model.bin"  # how transformers saved them before safetensors
_SAFE = ("model.safetensors", "model.safetensors.index.json")


def unpickled(path: Path) -> Any:
    """What `torch.load(weights_only=True)` makes of a file; anything else is refused."""
    _refuse_packed(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch on old formats
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as reason:  # a stranger's file: whatever is wrong with it, it is refused
        words = " ".join(str(reason).split())[:120]
        raise ClasswiseError(
            f"{path} holds more than tensors, or is damaged, and was not opened ({words}); save "
            "model.state_dict() alone"
        ) from None


def snapshot_pickles(folder: Path) -> list[Path]:
    """The pickles that hold the weights of a snapshot; none where it has safetensors."""
    if any((folder / name).is_file() for name in _SAFE):
        return []
    index = folder / f"{WEIGHTS}.index.json"
    if not index.is_file():
        return [folder / WEIGHTS] if (folder / WEIGHTS).is_file() else []
    about = parse_json(read_text(index), index)
    places = about.get("weight_map") if isinstance(about, dict) else None
    names = list(places.values()) if isinstance(places, dict) else []
    if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise ClasswiseError(f"{index} names no files beside it that hold the weights")
    return [folder / name for name in dict.fromkeys(names)]


def tensors_of(files: list[Path]) -> dict[str, Tensor]:
    """All tensors by name of the pickles of one network."""
    found: dict[str, Tensor] = {}
    for file in files:
        if not file.is_file():
            raise ClasswiseError(f"{file} is missing; get the snapshot again")
        inside = unpickled(file)
        if not isinstance(inside, Mapping) or not all(
            isinstance(value, Tensor) for value in inside.values()
        ):
            raise ClasswiseError(f"{file} holds {cut(type(inside).__name__)}, not tensors by name")
        found |= {str(name): value for name, value in inside.items()}
    return found


def _refuse_packed(path: Path) -> None:
    """Refuse an archive that would unpack to more than it is: torch never compresses its own."""
    try:
        if not zipfile.is_zipfile(path):  # which reads the end of the file, and breaks on some
            return
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
