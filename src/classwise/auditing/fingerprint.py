"""Names for what was audited that change whenever the answer could change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from classwise.auditing.content import content_of, tensor_bytes
from classwise.errors import ClasswiseError
from classwise.types import LogitModel


def model_hash(model: LogitModel, spec: Any = None) -> str:
    """Sixteen hex digits over a model's tensors and its architecture, wherever it lies.

    h = H(spec, part₁, part₂, …), where a part is all that decides what it computes
    (`classwise.auditing.content`). A function has no weights to look at: `spec` must name it.

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
                "another; give it a name of its own that changes with its weights (name=…)"
            )
        return digest.hexdigest()
    digest.update(content_of(model))
    return digest.hexdigest()


def data_hash(images: Tensor, labels: Tensor, class_names: Sequence[str] = ()) -> str:
    """Sixteen hex digits over images and labels that belong to no named data set.

    >>> import torch
    >>> x, y = torch.zeros(2, 1, 2, 2), torch.tensor([0, 1])
    >>> data_hash(x, y) == data_hash(x.clone(), y), data_hash(x, y) == data_hash(x, 1 - y)
    (True, False)
    """
    digest = hashlib.blake2b("\0".join(class_names).encode(), digest_size=8)
    for tensor in (images, labels):
        for piece in tensor_bytes(tensor):
            digest.update(piece)
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


def is_plain(value: Any) -> bool:
    """Whether a setting is a number, a word, or a list of such."""
    if isinstance(value, list | tuple):
        return all(is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)
