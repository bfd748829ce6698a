"""Models that only answer: a Python function without gradients, or an ONNX file."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from classwise.errors import ClasswiseError
from classwise.files import given_path
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

    def __call__(self, images: Images) -> Logits:
        """Scores of images, on their device."""
        images = images.detach()
        if not self.arrays:
            answer: Logits = self.function(images)
            return answer
        scores = np.asarray(self.function(images.cpu().contiguous().float().numpy()))
        if scores.dtype.kind not in "fiu":
            raise ClasswiseError(
                f"{self.name} gave {scores.dtype} values; it must return scores or logits (n, K)"
            )
        return torch.as_tensor(scores, dtype=images.dtype, device=images.device)


def as_model(model: Any, images: Images) -> LogitModel:
    """A model as it is, or, if it is a file or a function without gradients, as a black box.

    A function is tried on one image: first a tensor that asks for gradients, and if it does not
    take that, an array.
    """
    if isinstance(model, str | Path):
        return open_onnx(Path(model))
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
            boxed(images[:1])
        except ClasswiseError:
            raise
        except Exception as second:
            raise ClasswiseError(
                f"{name} takes neither a tensor ({_words(first)}) nor an array ({_words(second)})"
            ) from first
        return boxed
    if isinstance(answer, np.ndarray):
        return BlackBox(model, name)
    if isinstance(answer, Tensor) and not answer.requires_grad:
        return BlackBox(model, name, arrays=False)
    return model  # type: ignore[no-any-return]


def onnx_files(path: Path) -> list[Path]:
    """An ONNX file and the files beside it that hold its weights.

    A tensor kept elsewhere names its file in an entry of two strings: `location` and the name.
    """
    content = path.read_bytes()
    beside: set[Path] = set()
    for match in re.finditer(rb"\x0a\x08location\x12([\x00-\x7f]|[\x80-\xff][\x01-\x7f])", content):
        length = match[1][0] if len(match[1]) == 1 else match[1][0] % 128 + 128 * match[1][1]
        name = content[match.end() : match.end() + length].decode(errors="replace")
        beside.add(path.parent / name)
    return [path, *sorted(one for one in beside if one.is_file())]


def _words(reason: Exception) -> str:
    return f"{type(reason).__name__}: {' '.join(str(reason).split())[:200]}"


def open_onnx(path: Path) -> BlackBox:
    """An ONNX classifier as a black box; needs the extra `onnx`.

    The first input takes the images, the first output gives the scores. A file made for a fixed
    batch is fed as many images at a time as it wants.
    """
    if not given_path(path).is_file():
        raise ClasswiseError(f"{path} is no file; give the path of an ONNX model")
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError:
        raise ClasswiseError(
            f"{path.name}: reading ONNX needs onnxruntime; run: pip install 'classwise[onnx]'"
        ) from None
    try:
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as reason:  # onnxruntime's own errors have no common parent
        line = str(reason).splitlines()[0]
        raise ClasswiseError(f"{path} is not an ONNX model that can be run: {line}") from None
    takes = session.get_inputs()[0]
    fixed = takes.shape[0] if takes.shape and isinstance(takes.shape[0], int) else 0

    def scores(images: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        parts = []
        for begin in range(0, len(images), fixed or len(images)):
            part = images[begin : begin + (fixed or len(images))]
            short = (fixed - len(part)) if fixed else 0
            padded = np.concatenate((part, np.repeat(part[-1:], short, axis=0)))
            answer: npt.NDArray[Any] = session.run(None, {takes.name: padded})[0]
            parts.append(answer[: len(part)])
        return np.concatenate(parts)

    return BlackBox(scores, path.name)
