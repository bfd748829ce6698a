"""A model out of a weights file, at hand in Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from classwise.record.opening import Opening, open_model


def load_model(
    path: str | Path,
    *,
    arch: str | None = None,
    num_classes: int | None = None,
    channels: int = 3,
    normalise: Any = None,
    rename: Mapping[str, str] | None = None,
) -> nn.Module:
    """Open a weights file: images in [0, 1] to logits, in eval mode.

    A file of classwise says all of itself. For any other state dict (safetensors, or what
    `torch.load(weights_only=True)` opens) `arch` names the network: one of ours, `timm:NAME`,
    `torchvision:NAME`, `hf:FOLDER` or `module:callable` (docs/models.md). All tensors must fit;
    those of known layouts are renamed, and `rename` does so by hand. Where a file holds several
    sets of weights, `FILE@KEY` says which. Without `num_classes` the file's head says how many
    there are.
    `normalise` is what the network expects of its images, where the file does not carry it:
    `cifar10`, `imagenet`, a pair of means and deviations, or `none`.
    """
    how = Opening(arch, dict(rename or {}), normalise)
    return open_model(path, how, num_classes, channels).model
