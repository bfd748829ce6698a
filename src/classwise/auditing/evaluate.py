"""Run a model over images under every condition of an audit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn

from classwise.attacks.ball import parse_norm
from classwise.attacks.losses import LogitGap
from classwise.attacks.named import NamedAttack, parse_attacks
from classwise.attacks.pgd import batchnorm_mode
from classwise.auditing.metrics import ClassReport, ConditionReport, count_predictions
from classwise.auditing.predictions import Predictions
from classwise.data.batches import Batches
from classwise.data.dataset import check_labels, check_pixels
from classwise.errors import ClasswiseError
from classwise.spelling import parse_eps
from classwise.types import Batch, LogitModel


def audit(
    model: LogitModel,
    images: Any,
    labels: Any,
    *,
    attacks: str | Sequence[str] = ("clean", "pgd-20"),
    eps: float | str = 8 / 255,
    norm: str = "Linf",
    class_names: Sequence[str] | None = None,
    superclass_of: Sequence[int] | None = None,
    superclass_names: Sequence[str] | None = None,
    batch_size: int = 256,
    seed: int = 0,
    quiet: bool = True,
) -> ClassReport:
    """Audit any model that maps images in [0, 1] to logits, class by class.

    The model may be a torch module or a function; it is used in eval mode on its own device and
    left as it was. Images are uint8 or floats in [0, 1], shaped (n, channels, height, width).
    """
    pixels, numbers = torch.as_tensor(images), torch.as_tensor(labels)
    check_pixels(pixels)
    if not len(pixels):
        raise ClasswiseError("no images given; an audit needs at least one")
    num_classes = len(class_names) if class_names is not None else _output_count(model, pixels)
    check_labels(numbers, len(pixels), num_classes)
    names = tuple(class_names or (str(k) for k in range(num_classes)))
    found = evaluate(
        model,
        Batches(pixels, numbers.long(), torch.arange(len(pixels)), batch_size),
        num_classes=num_classes,
        attacks=attacks,
        eps=eps,
        norm=norm,
        seed=seed,
        quiet=quiet,
    )
    return class_report(found, names, superclass_of, superclass_names)


def class_report(
    found: Sequence[Predictions],
    class_names: Sequence[str],
    superclass_of: Sequence[int] | None = None,
    superclass_names: Sequence[str] | None = None,
) -> ClassReport:
    """Derive the report from predictions."""
    conditions = [
        ConditionReport(
            one.condition,
            count_predictions(one.label, one.predicted, len(class_names)),
            tuple(class_names),
            None if superclass_of is None else tuple(superclass_of),
            None if superclass_names is None else tuple(superclass_names),
        )
        for one in found
    ]
    last = found[-1]
    about = {
        "eps": float(last.radius.max()),
        "norm": last.norm,
        "seed": last.seed,
        "verdict": last.verdict,
    }
    return ClassReport(conditions, about)


def evaluate(
    model: LogitModel,
    batches: Batches,
    *,
    num_classes: int,
    attacks: str | Sequence[str],
    eps: float | str,
    norm: str = "Linf",
    seed: int = 0,
    quiet: bool = True,
    title: str = "audit",
) -> list[Predictions]:
    """Predictions of a model under every attack, in the order given."""
    conditions = parse_attacks(attacks if isinstance(attacks, str) else list(attacks))
    radius, ball = parse_eps(eps), parse_norm(norm)
    home = device_of(model)
    console = Console(stderr=True)
    hidden = quiet or not console.is_terminal
    found = []
    with _eval_mode(model), Progress(console=console, disable=hidden, transient=True) as progress:
        for attack in conditions:
            task = progress.add_task(f"{title}: {attack.name}", total=len(batches))
            rows = []
            for batch in batches.in_order():
                batch = Batch(
                    *(part.to(home) for part in (batch.images, batch.labels, batch.index))
                )
                rows.append(_judge(model, batch, attack, num_classes, radius, ball, seed))
                progress.advance(task)
            sample, label, predicted, gap = (
                torch.cat(column).cpu() for column in zip(*rows, strict=True)
            )
            wrong = (predicted != label).long().numpy()
            found.append(
                Predictions(
                    attack.name,
                    sample.numpy(),
                    label.numpy(),
                    predicted.numpy(),
                    gap.numpy().astype(np.float32),
                    radius=np.full(len(label), radius if attack.steps else 0.0),
                    iterations=np.full(len(label), attack.steps, dtype=np.int32),
                    broken_by=np.array([None, attack.name], dtype=object)[wrong],
                    norm=ball.name,
                    seed=seed,
                )
            )
    return found


def device_of(model: LogitModel) -> torch.device:
    """Return where a model's weights are; the processor for a plain function."""
    tensors: Iterator[Tensor] = model.parameters() if isinstance(model, nn.Module) else iter(())
    first = next(tensors, None)
    return torch.device("cpu") if first is None else first.device


def _judge(
    model: LogitModel,
    batch: Batch,
    attack: NamedAttack,
    num_classes: int,
    eps: float,
    ball: Any,
    seed: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    images = attack.perturb(model, batch, eps=eps, ball=ball, seed=seed)
    with torch.no_grad():
        logits = model(images)
    _check_logits(logits, len(batch), num_classes)
    return batch.index, batch.labels, logits.argmax(1), -LogitGap(batch.labels)(logits)


def _check_logits(logits: Any, count: int, num_classes: int) -> None:
    if not isinstance(logits, Tensor) or tuple(logits.shape) != (count, num_classes):
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ClasswiseError(
            f"the model gave {got} for {count} images, but there are {num_classes} classes; "
            f"it must return logits of shape ({count}, {num_classes})"
        )
    if not bool(torch.isfinite(logits).all()):
        raise ClasswiseError("the model's logits contain NaN or infinity; check its weights")


def _output_count(model: LogitModel, images: Tensor) -> int:
    one = images[:1].to(device_of(model))
    one = one.float() / 255 if one.dtype == torch.uint8 else one
    with _eval_mode(model), torch.no_grad():
        logits = model(one)
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise ClasswiseError(
            f"the model returned {type(logits).__name__}; it must return (n, K) logits"
        )
    return int(logits.shape[1])


def _eval_mode(model: LogitModel) -> AbstractContextManager[None]:
    return batchnorm_mode(model, "eval") if isinstance(model, nn.Module) else nullcontext()
