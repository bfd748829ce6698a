"""Mean logits of the images of every class, kept beside the audits: `similarity/` in a folder.

Who reads them needs neither the model nor the images.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from classwise.files import given_path
from classwise.locks import short_lock
from classwise.record.tensors import read_tensors, write_tensors
from classwise.sealed import Damaged

_HASH = re.compile(r"[0-9a-f]{1,64}")
_REMEDY = "delete it and make it again: classwise similarity"


@dataclass(frozen=True)
class ClassMeans:
    """Row k: the mean logits of the images of class k, as the model sees them without attack."""

    means: npt.NDArray[np.float64]  # K×K
    sizes: npt.NDArray[np.int64]  # images of each class
    class_names: tuple[str, ...]
    model_hash: str
    data_hash: str
    weights: str
    split: str

    @property
    def cosines(self) -> npt.NDArray[np.float64]:
        """cos(m_i, m_j) of all pairs of classes; nan for a class without images."""
        lengths = np.linalg.norm(self.means, axis=1)
        known = (lengths > 0) & (self.sizes > 0)
        unit = np.full(self.means.shape, np.nan)
        unit[known] = self.means[known] / lengths[known, None]
        found: npt.NDArray[np.float64] = np.clip(unit @ unit.T, -1, 1)
        return found


def write_means(folder: Path, found: ClassMeans) -> Path:
    """Keep them, under the identity of the model and of its images."""
    path = _place(folder, found.model_hash, found.data_hash)
    assert path is not None, "hashes of ours are hex digits"
    tensors = {"means": torch.from_numpy(found.means), "sizes": torch.from_numpy(found.sizes)}
    about = {
        "kind": "class means",
        "class_names": found.class_names,
        "model_hash": found.model_hash,
        "data_hash": found.data_hash,
        "weights": found.weights,
        "split": found.split,
    }
    with short_lock(folder, "writing class means"):
        write_tensors(path, tensors, about)
    return path


def read_means(folder: Path, model_hash: str, data_hash: str) -> ClassMeans | None:
    """What is kept of a model and data set; None where nothing is."""
    path = _place(folder, model_hash, data_hash)
    if path is None or not given_path(path).is_file():
        return None
    tensors, about = read_tensors(path)
    means, sizes = tensors.get("means"), tensors.get("sizes")
    names = _names(about.get("class_names"))
    if means is None or sizes is None or not names:
        raise _damaged(path, "it holds no class means")
    count = len(names)
    if means.shape != (count, count) or means.dtype != torch.float64:
        raise _damaged(path, f"its means are not those of {count} classes")
    if sizes.shape != (count,) or sizes.dtype != torch.int64 or bool((sizes < 0).any()):
        raise _damaged(path, f"its sizes are not those of {count} classes")
    if not bool(torch.isfinite(means).all()):
        raise _damaged(path, "its means are not finite")
    if (about.get("model_hash"), about.get("data_hash")) != (model_hash, data_hash):
        raise _damaged(path, "it is of another model or of other data")
    said = (str(about.get(key, "")) for key in ("weights", "split"))
    return ClassMeans(means.numpy(), sizes.numpy(), names, model_hash, data_hash, *said)


def _place(folder: Path, model_hash: str, data_hash: str) -> Path | None:
    """Where they are; a ledger may be a stranger's, and what is no hash leads nowhere."""
    if not all(_HASH.fullmatch(one) for one in (model_hash, data_hash)):
        return None
    return folder / "similarity" / f"{model_hash}-{data_hash}.safetensors"


def _names(said: Any) -> tuple[str, ...]:
    """Names of classes; nothing where something else stands in their place."""
    fine = isinstance(said, list) and all(isinstance(name, str) for name in said)
    return tuple(said) if fine else ()


def _damaged(path: Path, why: str) -> Damaged:
    return Damaged(f"{path} cannot be used: {why}; {_REMEDY}")
