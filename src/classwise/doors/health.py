"""Probe a model that is at hand in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from classwise.attacks.threat import Threat
from classwise.auditing.flags import Flag
from classwise.auditing.health import probe
from classwise.data.loaders import images_and_labels
from classwise.data.view import View
from classwise.doors.audit import subject_of
from classwise.types import LogitModel


def check_health(
    model: LogitModel | str,
    images: Any,
    labels: Any = None,
    *,
    eps: float | str = 8 / 255,
    norm: str = "Linf",
    class_names: Sequence[str] | None = None,
    steps: int = 10,
    queries: int = 200,
    batch_size: int = 128,
    seed: int = 0,
    normalise: Any = None,
    output: str | int | None = None,
    channels_last: bool = False,
) -> list[Flag]:
    """Probe a model for gradient masking and broken evaluation; a few hundred images suffice.

    Costs about 5·`steps` gradients and `queries` forward passes for every image. The model is
    left as it was. Images, labels, `normalise`, `output` and `channels_last` are as in
    `classwise.audit`.
    """
    pixels, labels = images_and_labels(images, labels, channels_last)
    known = None if class_names is None else len(class_names)
    subject = subject_of(
        model, pixels, known, {"normalise": normalise}, width=batch_size, output=output
    )
    data = View.given(pixels, labels, subject.num_classes, class_names)
    return probe(subject, data, Threat.of(eps, norm), steps=steps, queries=queries, seed=seed)
