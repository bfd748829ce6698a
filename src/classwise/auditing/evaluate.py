"""Run a model over images under every condition of an audit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress, TaskID
from torch import Tensor

from classwise.attacks.ball import parse_norm
from classwise.attacks.blackbox import BlackBox, as_model
from classwise.attacks.fixed import Condition, radii_under
from classwise.attacks.named import parse_attacks
from classwise.attacks.suite import ask
from classwise.auditing.flags import FEW, Flag, random_flags
from classwise.auditing.groups import Grouping, tallies
from classwise.auditing.judging import (
    as_floats,
    eval_mode,
    in_its_kind,
    judge,
    output_count,
)
from classwise.auditing.metrics import ClassReport, ConditionReport, count_predictions
from classwise.auditing.predictions import Predictions
from classwise.data.batches import Batches
from classwise.data.dataset import check_labels, check_pixels
from classwise.errors import ClasswiseError
from classwise.types import Batch, LogitModel

_POOL = 2**27  # bytes of pixels from which a working batch is refilled


def checked(
    model: LogitModel | str, images: Any, labels: Any, class_names: Sequence[str] | None
) -> tuple[LogitModel, Tensor, Tensor, tuple[str, ...]]:
    """What a user gave as model, images, labels and class names, or an error that says why not."""
    pixels, numbers = torch.as_tensor(images), torch.as_tensor(labels)
    check_pixels(pixels)
    if not len(pixels):
        raise ClasswiseError("no images given; an audit needs at least one")
    if not pixels.dtype.is_floating_point and pixels.dtype != torch.uint8:
        raise ClasswiseError(f"images are {pixels.dtype}; give uint8, or floats in [0, 1]")
    known = as_model(model, as_floats(pixels[:1]))
    names = None if class_names is None else tuple(str(name) for name in class_names)
    num_classes = len(names) if names is not None else output_count(known, pixels)
    check_labels(numbers, len(pixels), num_classes)
    names = names or tuple(str(k) for k in range(num_classes))
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ClasswiseError(f"class names must differ; {twice[0]!r} appears twice")
    return known, pixels, numbers.long(), names


def steady_flags(model: LogitModel, images: Any, passes: int = 1) -> list[Flag]:
    """Whether a model answers differently when it is asked again about a few images."""
    few = in_its_kind(model, images[:FEW])
    with eval_mode(model):
        return random_flags(model, few, ask(model, few, FEW), FEW, passes)


def remarks(model: LogitModel, flags: Sequence[Flag]) -> dict[str, Any]:
    """What a reader must know beside the numbers; nothing where there is nothing to say."""
    said = {"flags": [str(flag) for flag in flags], "black_box": isinstance(model, BlackBox)}
    return {key: value for key, value in said.items() if value}


def class_report(
    found: Sequence[Predictions],
    class_names: Sequence[str],
    superclass_of: Sequence[int] | None = None,
    superclass_names: Sequence[str] | None = None,
    groupings: Mapping[str, Grouping] | None = None,
    unfinished: str = "",
) -> ClassReport:
    """Derive the report from predictions; `unfinished` says what an audit in part lacks."""
    conditions = [
        ConditionReport(
            one.condition,
            count_predictions(one.label, one.predicted, len(class_names)),
            tuple(class_names),
            None if superclass_of is None else tuple(superclass_of),
            None if superclass_names is None else tuple(superclass_names),
            eps=float(one.radius.max()),
            groups=tallies(groupings, one.sample, one.label, one.correct),
            norm=one.norm,
            verdict=one.verdict,
            unfinished=unfinished,
        )
        for one in found
    ]
    attacked = [one for one in found if one.condition != "clean"] or list(found)
    about = {
        "eps": max(float(one.radius.max()) for one in found),
        "norm": found[-1].norm,
        "seed": found[-1].seed,
        "verdict": ", ".join(dict.fromkeys(one.verdict for one in attacked)),
    }
    return ClassReport(conditions, about)


def evaluate(
    model: LogitModel,
    batches: Batches,
    *,
    num_classes: int,
    attacks: str | Sequence[Any],
    eps: float | str | Any,
    norm: str = "Linf",
    seed: int = 0,
    quiet: bool = True,
    title: str = "audit",
    width: int | None = None,
    after: Callable[[str, Tensor], None] | None = None,
) -> list[Predictions]:
    """Predictions of a model under every attack, in the order given.

    At most `width` samples are attacked at a time (by default a batch); as they fall, others move
    up. `after` hears of each attack of a suite which samples still stand.
    """
    conditions = parse_attacks(attacks)
    ball = parse_norm(norm)
    radii = [radii_under(attack, eps, ball, len(batches.labels)) for attack in conditions]
    _check_gradients(model, conditions)
    found = []
    with progress_bar(quiet) as progress:
        for attack, radius in zip(conditions, radii, strict=True):
            task = progress.add_task(f"{title}: {attack.name}", total=len(batches.labels))
            parts, done = [], 0
            for pool in _pools(batches):
                try:
                    judged = judge(
                        model,
                        pool,
                        attack,
                        num_classes=num_classes,
                        radius=radius[done : done + len(pool)],
                        ball=ball,
                        seed=seed,
                        width=width or batches.batch_size,
                        after=after or told(progress, task, f"{title}: {attack.name}"),
                    )
                except Exception as reason:
                    span = f"samples {int(pool.index.min())} to {int(pool.index.max())}"
                    reason.add_note(f"while {attack.name} was run on {span}")
                    raise
                parts.append(judged)
                done += len(pool)
                progress.advance(task, len(pool))
            found.append(_joined(parts))
    return found


def progress_bar(quiet: bool) -> Progress:
    """A bar on a terminal, nothing elsewhere."""
    console = Console(stderr=True)
    return Progress(console=console, disable=quiet or not console.is_terminal, transient=True)


def told(progress: Progress, task: TaskID, title: str) -> Callable[[str, Tensor], None]:
    """Say beside the bar how far a suite has come with its batch."""

    def tell(attack: str, standing: Tensor) -> None:
        if not progress.disable:
            left = f"{int(standing.sum())} of {len(standing)} stand after {attack}"
            progress.update(task, description=f"{title}: {left}")

    return tell


def _joined(parts: Sequence[Predictions]) -> Predictions:
    first = parts[0]
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("sample", "label", "predicted", "logit_gap", "radius", "iterations")
    }
    broken_by = np.concatenate([part.broken_by for part in parts])
    facts = {"norm": first.norm, "seed": first.seed, "verdict": first.verdict}
    return Predictions(first.condition, **columns, broken_by=broken_by, **facts)  # type: ignore[arg-type]


def _pools(batches: Batches) -> Iterator[Batch]:
    """Several batches as one, as many as fit a fixed amount of memory."""
    held: list[Batch] = []
    size = 0
    for batch in batches.in_order():
        held.append(batch)
        size += batch.images.numel() * batch.images.element_size()
        if size >= _POOL:
            yield _together(held)
            held, size = [], 0
    if held:
        yield _together(held)


def _together(held: Sequence[Batch]) -> Batch:
    if len(held) == 1:
        return held[0]
    return Batch(
        torch.cat([one.images for one in held]),
        torch.cat([one.labels for one in held]),
        torch.cat([one.index for one in held]),
    )


def _check_gradients(model: LogitModel, conditions: Sequence[Condition]) -> None:
    needy = [one.name for one in conditions if one.needs_gradient]
    if needy and isinstance(model, BlackBox):
        raise ClasswiseError(
            f"{', '.join(needy)} needs gradients, but the model is a black box; use clean,square"
        )
