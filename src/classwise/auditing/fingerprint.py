"""Names for what was audited that change whenever the answer could change."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from classwise.errors import ClasswiseError
from classwise.types import LogitModel


def model_hash(model: LogitModel, spec: Any = None) -> str:
    """Sixteen hex digits over a model's tensors and its architecture, wherever it lies.

    h = H(spec, structure, name₁, dtype₁, shape₁, bytes₁, …)

    The structure is the class of every part, its source where it can be read, and its plain
    settings (a kernel size, a scale). A function has no weights to look at: `spec` must name it.

    >>> one, two = nn.Linear(2, 2), nn.Linear(2, 2)
    >>> _ = two.load_state_dict(one.state_dict())
    >>> model_hash(one) == model_hash(two), model_hash(one) == model_hash(one.double())
    (True, False)
    """
    digest = hashlib.blake2b(digest_size=8)
    digest.update(json.dumps(spec, sort_keys=True, default=str).encode())
    if not isinstance(model, nn.Module):
        if not spec:
            raise ClasswiseError(
                "a ledger must know a model again, and a plain function cannot be told from "
                "another; give it a name of its own that changes with its weights"
            )
        return digest.hexdigest()
    kinds = {type(part) for part in model.modules()}
    for kind in sorted(kinds, key=_full_name):
        digest.update(f"{_full_name(kind)}\n{_source(kind)}".encode())
    for name, part in model.named_modules():
        digest.update(f"{name}:{_full_name(type(part))}:{_settings(part)}\n".encode())
    for name, tensor in _tensors(model):
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        whole = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(whole.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def data_hash(images: Tensor, labels: Tensor) -> str:
    """Sixteen hex digits over images and labels that belong to no named data set.

    >>> x, y = torch.zeros(2, 1, 2, 2), torch.tensor([0, 1])
    >>> data_hash(x, y) == data_hash(x.clone(), y), data_hash(x, y) == data_hash(x, 1 - y)
    (True, False)
    """
    digest = hashlib.blake2b(digest_size=8)
    for tensor in (images, labels):
        digest.update(f"{tensor.dtype}:{tuple(tensor.shape)}".encode())
        whole = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(whole.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def attack_key(
    attack: str, eps: float | Sequence[float], norm: str, seed: int, verdict: str
) -> str:
    """Sixteen hex digits over all that decides what an attack does to an image.

    Clean images depend on nothing but the image, so they are the same for every radius and seed.

    >>> attack_key("clean", 0.1, "Linf", 1, "last") == attack_key("clean", 0.2, "L2", 2, "last")
    True
    """
    radius = [float(value) for value in ([eps] if isinstance(eps, int | float) else eps)]
    facts = ["clean"] if attack == "clean" else [attack, radius, norm, seed, verdict]
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=8).hexdigest()


def _tensors(model: nn.Module) -> Iterable[tuple[str, Tensor]]:
    """Parameters, all buffers, and tensors kept as plain attributes, by name."""
    found = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, part in model.named_modules():
        plain = {k: v for k, v in vars(part).items() if isinstance(v, Tensor)}
        found |= {f"{name}.{key} (plain)": value for key, value in plain.items()}
    return sorted(found.items())


def _settings(part: nn.Module) -> str:
    """Plain numbers, words and lists of them; not the mode, which an audit sets itself."""
    plain = {k: v for k, v in vars(part).items() if k != "training" and is_plain(v)}
    return repr(sorted(plain.items()))


def is_plain(value: Any) -> bool:
    """Whether a setting is a number, a word, or a list of such."""
    if isinstance(value, list | tuple):
        return all(is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def _source(kind: type) -> str:
    """Source of a class that is not torch's own; nothing where there is none to read."""
    if kind.__module__.split(".")[0] in ("torch", "torchvision", "timm"):
        return ""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return ""


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
