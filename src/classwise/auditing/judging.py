"""The verdict of an attack on one batch, on the model's own device and in its precision."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from classwise.attacks.ball import Ball
from classwise.attacks.fixed import Condition, radii_under
from classwise.attacks.named import parse_attack
from classwise.attacks.pgd import batchnorm_mode
from classwise.attacks.suite import Judged, ask
from classwise.auditing.predictions import Predictions
from classwise.memory import keep_freed_memory
from classwise.types import Batch, LogitModel, PerSample


def judge(
    model: LogitModel,
    batch: Batch,
    attack: str | Condition,
    *,
    num_classes: int,
    radius: float | PerSample,
    ball: Ball,
    seed: int = 0,
    width: int | None = None,
    after: Callable[[str, Tensor], None] | None = None,
) -> Predictions:
    """Give the verdict on every sample of one batch; it depends on nothing outside the batch.

    At most `width` samples are attacked at a time; as they fall, others of the batch move up.
    """
    condition = parse_attack(attack) if isinstance(attack, str) else attack
    facts: dict[str, Any] = {"num_classes": num_classes, "ball": ball, "seed": seed}
    reach = radii_under(condition, radius, ball, len(batch))
    found = attacked(model, batch, condition, radius=reach, width=width, after=after, **facts)
    return predictions(condition, batch, found, reach * (condition.name != "clean"), ball, seed)


def attacked(
    model: LogitModel,
    batch: Batch,
    condition: Condition,
    *,
    num_classes: int,
    radius: float | PerSample,
    ball: Ball,
    seed: int = 0,
    width: int | None = None,
    after: Callable[[str, Tensor], None] | None = None,
) -> Judged:
    """Attack one batch in eval mode, on the model's device and in its precision.

    `after` hears of each attack of a suite which samples are still standing.
    """
    keep_freed_memory()
    home, kind = device_of(model), _kind_of(model, batch.images)
    images = in_its_kind(model, batch.images)
    if kind in (torch.float16, torch.bfloat16):
        model, kind, images = _Short(model, kind), torch.float32, as_floats(batch.images.to(home))
    with eval_mode(model):
        images = _laid_out(model, images.to(kind), num_classes)
        return condition.judge(
            model,
            Batch(images, batch.labels.to(home), batch.index.to(home)),
            num_classes=num_classes,
            radius=torch.as_tensor(radius, dtype=kind, device=home).expand(len(batch)),
            ball=ball,
            seed=seed,
            width=width or len(batch),
            after=after,
        )


class _Short(nn.Module):
    """A model in half precision: radii and steps need more digits than its images have."""

    def __init__(self, model: LogitModel, kind: torch.dtype) -> None:
        super().__init__()
        self.model, self.kind = model, kind
        self.training = getattr(model, "training", False)

    def forward(self, images: Tensor) -> Tensor:
        """Ask in its own precision."""
        return self.model(images.to(self.kind)).float()


def predictions(
    condition: Condition, batch: Batch, found: Judged, radius: Tensor, ball: Ball, seed: int
) -> Predictions:
    """Write a verdict as rows of the long table."""
    names = np.array([None, *found.attacks], dtype=object)
    return Predictions(
        condition.name,
        batch.index.cpu().numpy(),
        batch.labels.cpu().numpy(),
        found.predicted.cpu().numpy(),
        found.logit_gap.cpu().numpy().astype(np.float32),
        radius=radius.cpu().numpy(),
        iterations=found.iterations.cpu().numpy(),
        broken_by=names[found.fell_to.cpu().numpy() + 1],
        norm=ball.name,
        seed=seed,
        verdict=condition.verdict,
    )


def device_of(model: LogitModel) -> torch.device:
    """Return where a model's weights are; the processor for a plain function."""
    first = _first_tensor(model)
    return torch.device("cpu") if first is None else first.device


def eval_mode(model: LogitModel) -> AbstractContextManager[None]:
    """Put a module in eval mode for a while; a function has none."""
    return batchnorm_mode(model, "eval") if isinstance(model, nn.Module) else nullcontext()


def _laid_out(model: LogitModel, images: Tensor, num_classes: int) -> Tensor:
    """Channels last, which convolutions like, unless the model asks for views of its input.

    Two images also show what is wrong with a model before any attack starts.
    """
    last = images.contiguous(memory_format=torch.channels_last)
    try:
        ask(model, last[:2], 2, num_classes)
    except RuntimeError:
        plain = images.contiguous()
        ask(model, plain[:2], 2, num_classes)
        return plain
    return last


def _first_tensor(model: LogitModel) -> Tensor | None:
    """The first floating-point weight or buffer of a module."""
    if not isinstance(model, nn.Module):
        return None
    tensors = (*model.parameters(), *model.buffers())
    return next((one for one in tensors if one.is_floating_point()), None)


def _kind_of(model: LogitModel, images: Tensor) -> torch.dtype:
    """The precision a model computes in; a function takes images as they are."""
    first = _first_tensor(model)
    if first is not None:
        return first.dtype
    return images.dtype if images.is_floating_point() else torch.float32


def as_floats(images: Tensor) -> Tensor:
    """Bytes to [0, 1]; floats stay as they are."""
    return images.float().div_(255) if images.dtype == torch.uint8 else images


def in_its_kind(model: LogitModel, images: Tensor) -> Tensor:
    """Images where a model's weights are, in their precision."""
    return as_floats(images.to(device_of(model))).to(_kind_of(model, images))


def output_count(model: LogitModel, images: Tensor) -> int:
    """Ask a model about one image and count its logits."""
    with eval_mode(model):
        return int(ask(model, in_its_kind(model, images[:1]), 1).shape[1])
