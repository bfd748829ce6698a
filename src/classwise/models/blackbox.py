"""Models that only answer, without gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from classwise.errors import ClasswiseError
from classwise.models.outputs import parts_of
from classwise.types import Images, LogitModel, Logits


@dataclass(frozen=True, slots=True)
class BlackBox:
    """A function to scores (n, K) as a model without gradients.

    It is given float32 arrays (n, c, h, w), or, without `arrays`, tensors. Scores may be logits or
    probabilities: Square only compares them.

    >>> BlackBox(lambda x: x.reshape(len(x), -1))(torch.ones(1, 1, 1, 2))
    tensor([[1., 1.]])
    """

    function: Callable[[Any], Any]
    name: str = "function"
    arrays: bool = True
    before: Callable[[Images], Images] | None = None  # what becomes of the images first

    def raw(self, images: Images) -> Any:
        """Whatever the function gives."""
        images = images.detach()
        images = images if self.before is None else self.before(images)
        given = images.cpu().contiguous().float().numpy() if self.arrays else images
        return self.function(given)

    def __call__(self, images: Images) -> Logits:
        """Scores of images, on their device."""
        return self.scores(self.raw(images), images)

    def scores(self, answer: Any, images: Images) -> Logits:
        """An answer as a tensor beside the images."""
        if isinstance(answer, Tensor):
            return answer
        scores = np.asarray(answer)
        if scores.dtype.kind not in "fiu":
            raise ClasswiseError(
                f"{self.name} gave {scores.dtype} values; it must return scores or logits (n, K)"
            )
        return torch.as_tensor(scores, dtype=images.dtype, device=images.device)


def as_model(model: Any, images: Images) -> LogitModel:
    """A model as it is, or, if it is a function without gradients, as a black box.

    A function is tried on one image: first a tensor that asks for gradients, and if it does not
    take that, an array.
    """
    if isinstance(model, nn.Module | BlackBox):
        return model
    if not callable(model):
        raise ClasswiseError(
            f"the model is a {type(model).__name__}; give a torch module, a function from images "
            "to logits, or the path of an ONNX file"
        )
    name = getattr(model, "__name__", "function")
    try:
        with torch.enable_grad():
            answer = model(images[:1].detach().clone().requires_grad_())
    except Exception as first:  # whatever it says of a tensor, an array decides
        boxed = BlackBox(model, name)
        try:
            boxed.raw(images[:1])
        except ClasswiseError:
            raise
        except Exception as second:
            raise ClasswiseError(
                f"{name} takes neither a tensor ({_words(first)}) nor an array ({_words(second)})"
            ) from first
        return boxed
    found = list((parts_of(answer) or {"": answer}).values())
    if any(isinstance(one, np.ndarray) for one in found):
        return BlackBox(model, name)
    tensors = [one for one in found if isinstance(one, Tensor)]
    if tensors and not any(one.requires_grad for one in tensors):
        return BlackBox(model, name, arrays=False)
    return model  # type: ignore[no-any-return]


def _words(reason: Exception) -> str:
    return f"{type(reason).__name__}: {' '.join(str(reason).split())[:200]}"
