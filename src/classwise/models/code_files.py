"""Files that hold code: TorchScript and torch.export; opened only for those who trust them."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from classwise.errors import ClasswiseError
from classwise.types import Images, Logits

SCRIPT, EXPORT = "TorchScript", "torch.export"


def code_in(path: Path) -> str | None:
    """Whether a file holds TorchScript or an exported program; nothing is run to see it."""
    try:
        if not path.is_file() or not zipfile.is_zipfile(path):
            return None
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception:  # an archive that claims to be one may break in any way
        return None
    inside = [name.partition("/")[2] for name in names]  # torch puts all into one folder
    if "constants.pkl" in inside and any(name.startswith("code/") for name in inside):
        return SCRIPT
    if "archive_format" in inside or "serialized_exported_program.json" in (*names, *inside):
        return EXPORT
    return None


def open_code(path: Path, kind: str, *, trusted: bool) -> nn.Module:
    """The network of a file that holds code."""
    if not trusted:
        raise ClasswiseError(
            f"{path} is a {kind} file, and that is code, which would run with your rights; if you "
            "know where it comes from, add --trust, else ask for its weights alone "
            "(model.state_dict(), or ONNX)"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch on its own older ways
            if kind == SCRIPT:
                script: nn.Module = torch.jit.load(path, map_location="cpu")  # type: ignore[no-untyped-call]
                return script.eval()
            program = torch.export.load(path)
    except Exception as reason:  # whatever is wrong with it, it cannot be opened
        words = " ".join(str(reason).split())[:200]
        raise ClasswiseError(f"{path} cannot be opened as a {kind} file: {words}") from None
    return _exported(program)


def _exported(program: Any) -> nn.Module:
    """An exported program as a module; it has no train mode, and maybe one size of batch."""
    module: nn.Module = program.module()
    for name in ("train", "eval"):  # which it refuses; here they change nothing
        vars(module).pop(name, None)
    first = next(n for n in program.graph.nodes if n.name in program.graph_signature.user_inputs)
    batch = first.meta["val"].shape[0]
    return OfBatches(module, batch) if isinstance(batch, int) else module


class OfBatches(nn.Module):
    """A network that takes one number of images only, asked about any number.

    >>> OfBatches(nn.Flatten(), 2)(torch.zeros(3, 1, 1, 2)).shape
    torch.Size([3, 2])
    """

    def __init__(self, model: nn.Module, batch: int) -> None:
        super().__init__()
        self.model, self.batch = model, batch
        self.training = model.training

    def forward(self, images: Images) -> Logits:
        """Answers, a batch at a time; the last one is filled up."""
        parts: list[Tensor] = []
        for part in torch.split(images, self.batch):
            short = self.batch - len(part)
            whole = torch.cat([part, part[-1:].expand(short, *part.shape[1:])]) if short else part
            parts.append(self.model(whole)[: len(part)])
        return torch.cat(parts)
