"""A file with operators that our reader lacks, converted by onnx2torch where that is installed.

It is another's code, so its network is believed only where it answers as onnxruntime does, on every
image of the audit.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from classwise.errors import cut
from classwise.models.onnx_running import Running
from classwise.types import Images

NEAR = 1e-5  # difference from onnxruntime, relative to an image's largest score from 1 up


class NotConverted(Exception):
    """Why there is no conversion, or why it is not believed; no words where nobody tried."""


class Converted(nn.Module):
    """A converted network for images with channels first; its answer by name if it has several."""

    def __init__(self, network: nn.Module, running: Running) -> None:
        super().__init__()
        self.network, self.last = network, running.entrance.last
        self.every, self.names = running.outputs, running.names

    def forward(self, images: Images) -> Any:
        """Ask for the outputs that are wanted."""
        answer = self.network(images.permute(0, 2, 3, 1) if self.last else images)
        parts = [answer] if isinstance(answer, Tensor) else list(answer)
        found = dict(zip(self.every, parts, strict=True))
        return found[self.names[0]] if len(self.names) == 1 else {n: found[n] for n in self.names}

    def named(self, images: Images) -> dict[str, Tensor]:
        """The same by name, without gradients, in double precision."""
        with torch.no_grad():
            answer = self(images)
        found = answer if isinstance(answer, dict) else {self.names[0]: answer}
        return {name: one.cpu().double() for name, one in found.items()}

    def has_slopes(self, images: Images) -> bool:
        """Whether its answers depend on the images in a way that attacks can follow."""
        with torch.enable_grad():
            answer = self(images.detach().clone().requires_grad_())
        return all(
            one.requires_grad for one in (answer.values() if len(self.names) > 1 else [answer])
        )


def convert(running: Running, audited: Iterator[Images]) -> tuple[nn.Module, int]:
    """The network of a file, and on how many images it answers as onnxruntime does."""
    network, count = _made(running), 0
    for images in audited:
        some = images.to(running.entrance.kind)
        theirs = running.scores(some.cpu().numpy())
        try:
            mine, slopes = network.named(some), bool(count) or network.has_slopes(some[:1])
        except Exception as reason:  # another's code: whatever is wrong with it, it is not used
            raise NotConverted(f"onnx2torch's network cannot be run: {_words(reason)}") from None
        if not slopes:
            raise NotConverted("onnx2torch's network has no gradients")
        if not all(_agree(mine[name], theirs[name]) for name in running.names):
            raise NotConverted("onnx2torch's network answers otherwise than onnxruntime")
        count += len(images)
    return network, count


def _made(running: Running) -> Converted:
    try:
        library = importlib.import_module("onnx2torch")
    except Exception as reason:  # it imports torchvision, which may not fit this torch
        if isinstance(reason, ModuleNotFoundError) and reason.name == "onnx2torch":
            raise NotConverted from None
        raise NotConverted(f"onnx2torch cannot be imported: {_words(reason)}") from None
    try:
        given: Any = str(running.path)
        if running.path.suffix.lower() == ".gz":
            given = importlib.import_module("onnx").load_model_from_string(running.content)
        network: Converted = Converted(library.convert(given), running).eval()
        return network
    except Exception as reason:  # as above
        raise NotConverted(f"onnx2torch does not convert it: {_words(reason)}") from None


def _agree(mine: Tensor, theirs: Any) -> bool:
    its = torch.from_numpy(np.asarray(theirs).astype(np.float64))
    if mine.shape != its.shape:
        return False
    apart, size = ((one.flatten(1).abs().amax(1)) for one in (mine - its, its))
    return bool((apart <= NEAR * size.clamp(min=1)).all())  # NaN is no agreement


def _words(reason: Exception) -> str:
    return cut(" ".join(f"{type(reason).__name__}: {reason}".split()))
