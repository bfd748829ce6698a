"""What onnxruntime says of images."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from classwise.errors import ClasswiseError
from classwise.models.onnx_file import is_onnx

FLOATS = {torch.float16: np.float16, torch.float32: np.float32, torch.float64: np.float64}
Scores: TypeAlias = Callable[[npt.NDArray[Any]], dict[str, Any]]  # outputs by name


@dataclass(frozen=True)
class Entrance:
    """Where a graph takes its images."""

    name: str
    kind: torch.dtype
    batch: int | None  # the only number of images that it takes
    last: bool  # channels last


@dataclass(frozen=True)
class Running:
    """A file that onnxruntime runs."""

    path: Path
    content: bytes
    entrance: Entrance
    outputs: tuple[str, ...]  # all, in their order
    names: tuple[str, ...]  # those that are asked for
    scores: Scores


def runtime(path: Path, content: bytes) -> Any:
    """A session of onnxruntime's; None where it is not installed."""
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError:
        return None
    given: Any = content if is_onnx(path) and path.suffix.lower() == ".gz" else str(path)
    try:
        return runtime.InferenceSession(given, providers=["CPUExecutionProvider"])
    except Exception as reason:  # onnxruntime's own errors have no common parent
        line = str(reason).splitlines()[0]
        raise ClasswiseError(f"{path} is not an ONNX model that can be run: {line}") from None


def scores_of(session: Any, entrance: Entrance, names: tuple[str, ...]) -> Scores:
    """Some outputs of a session for any number of images; a fixed batch is filled up."""
    fixed, kind = entrance.batch or 0, FLOATS[entrance.kind]

    def scores(images: npt.NDArray[Any]) -> dict[str, Any]:
        parts = []
        images = (images.transpose(0, 2, 3, 1) if entrance.last else images).astype(kind)
        for begin in range(0, len(images), fixed or len(images)):
            part = images[begin : begin + (fixed or len(images))]
            short = (fixed - len(part)) if fixed else 0
            padded = np.concatenate((part, np.repeat(part[-1:], short, axis=0)))
            try:
                answers = session.run(names, {entrance.name: np.ascontiguousarray(padded)})
            except Exception as reason:  # as above
                line = str(reason).splitlines()[0][:300]
                raise ClasswiseError(
                    f"onnxruntime cannot run it on {padded.shape}: {line}"
                ) from None
            parts.append([np.asarray(one)[: len(part)] for one in answers])
        return dict(zip(names, map(np.concatenate, zip(*parts, strict=True)), strict=True))

    return scores
