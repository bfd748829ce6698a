"""Probe a model that is at hand in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from classwise.attacks.threat import Threat
from classwise.auditing.flags import Flag
from classwise.auditing.health import probe
from classwise.data.view import View, given_images
from classwise.models.subject import Subject
from classwise.types import LogitModel


def check_health(
    model: LogitModel | str,
    images: Any,
    labels: Any,
    *,
    eps: float | str = 8 / 255,
    norm: str = "Linf",
    class_names: Sequence[str] | None = None,
    steps: int = 10,
    queries: int = 200,
    batch_size: int = 128,
    seed: int = 0,
) -> list[Flag]:
    """Probe a model for gradient masking and broken evaluation; a few hundred images suffice.

    Costs about 5·`steps` gradients and `queries` forward passes for every image. The model is
    left as it was.
    """
    pixels = given_images(images)
    known = None if class_names is None else len(class_names)
    subject = Subject.of(model, pixels, known, width=batch_size)
    data = View.given(pixels, labels, subject.num_classes, class_names)
    return probe(subject, data, Threat.of(eps, norm), steps=steps, queries=queries, seed=seed)
