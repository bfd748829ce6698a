"""Weights and training state on disk: safetensors with a JSON header, never a pickle.

The header has a checksum over itself and over every tensor's name, type, shape and bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save
from torch import Tensor

from classwise.errors import ClasswiseError
from classwise.files import write_atomically
from classwise.sealed import Damaged
from classwise.texts import parse_json

FORMAT = 1
CHECKSUM = "checksum"  # files of older versions have none, and are read as they are


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write tensors and a description, atomically."""
    plain = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    said = json.loads(json.dumps({"format": FORMAT, **about}))  # as it will be read
    header = json.dumps({**said, CHECKSUM: _checksum(plain, said)}, sort_keys=True)
    write_atomically(path, save(plain, {"classwise": header}))


def _checksum(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> str:
    total = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        total.update(f"\0{name}\0{tensor.dtype}\0{list(tensor.shape)}\0".encode())
        total.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


class PickleError(ClasswiseError):
    """A file that could run code when opened."""


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and their description; anything else is refused by name."""
    tensors, about = read_safetensors(path)
    if about is None:
        raise ClasswiseError(
            f"{path} was not written by classwise: its header says nothing of the model"
        )
    return tensors, about


def written_here(path: Path) -> bool:
    """Whether classwise wrote a file, by its header alone."""
    try:
        with safetensors.safe_open(str(path), framework="pt") as opened:
            return "classwise" in (opened.metadata() or {})
    except Exception:  # whatever it is, it is none of ours
        return False


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    """Read tensors, and their description if classwise wrote the file."""
    if not path.is_file():
        raise ClasswiseError(f"no checkpoint {path}")
    try:
        with safetensors.safe_open(str(path), framework="pt") as opened:
            header = (opened.metadata() or {}).get("classwise")
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except Exception as reason:  # a stranger's file: whatever is wrong with it, it is refused
        # Asked only after safetensors refused: its files may begin with any byte.
        with path.open("rb") as stream:
            first = stream.read(2)
        if path.suffix == ".npz":
            raise ClasswiseError(
                f"{path} holds arrays, not weights; give a .safetensors file"
            ) from None
        if first in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
            raise PickleError(
                f"{path} is a pickle, which can run code when opened; save the weights as "
                "safetensors"
            ) from None
        raise Damaged(f"{path} is damaged or no safetensors file ({reason})") from None
    if header is None:
        return tensors, None
    about = _description(header, path)
    said = about.pop(CHECKSUM, None)
    if said is not None and said != _checksum(tensors, about):
        raise Damaged(
            f"{path} is damaged: its content does not match its checksum; restore it from a copy, "
            "or make it again"
        )
    return tensors, about


def _description(header: str, path: Path) -> dict[str, Any]:
    about = parse_json(header, f"the header of {path}")
    if not isinstance(about, dict):
        raise Damaged(f"{path} has a header that is no description of a model")
    if about.get("format") != FORMAT:
        raise ClasswiseError(
            f"{path} has format {about.get('format')}, this classwise reads format {FORMAT}"
        )
    return about


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put a prefix before every name."""
    return {f"{prefix}.{name}": value for name, value in tensors.items()}


def under_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Take the tensors with a prefix, without it."""
    cut = len(prefix) + 1
    return {n[cut:]: value for n, value in tensors.items() if n.startswith(f"{prefix}.")}


def pack(prefix: str, state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Divide a flat state into tensors and plain values."""
    tensors = {f"{prefix}.{n}": v for n, v in state.items() if isinstance(v, Tensor)}
    plain = {n: v for n, v in state.items() if not isinstance(v, Tensor)}
    return tensors, plain


def pack_optimiser(optimiser: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Divide an optimiser's state into tensors and plain values."""
    state = optimiser.state_dict()["state"]
    tensors: dict[str, Tensor] = {}
    plain: dict[str, Any] = {}
    for number, entry in state.items():
        some, rest = pack(f"optimiser.{number}", entry)
        tensors |= some
        plain[str(number)] = rest
    return tensors, plain


def unpack_optimiser(
    optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]
) -> None:
    """Put a packed state back."""
    whole = optimiser.state_dict()
    whole["state"] = {
        int(number): {**rest, **under_prefix(f"optimiser.{number}", tensors)}
        for number, rest in plain.items()
    }
    optimiser.load_state_dict(whole)
