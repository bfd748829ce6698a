"""Audit a model that is at hand in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from classwise.attacks.averaged import mean_of_passes
from classwise.attacks.blackbox import BlackBox, onnx_files
from classwise.auditing.evaluate import checked, class_report, remarks, steady_flags
from classwise.auditing.fingerprint import data_hash
from classwise.auditing.flags import check_records
from classwise.auditing.groups import of_samples
from classwise.auditing.kept import Place, audit_model, notes_on
from classwise.auditing.metrics import ClassReport
from classwise.auditing.predictions import describe, write_card
from classwise.data.batches import Batches
from classwise.data.dataset import check_superclasses
from classwise.errors import ClasswiseError
from classwise.training.run import file_hash
from classwise.types import LogitModel

DEFAULT_ATTACKS = ("clean", "pgd-20")


def audit(
    model: LogitModel | str,
    images: Any,
    labels: Any,
    *,
    attacks: str | Sequence[Any] = DEFAULT_ATTACKS,
    eps: float | str | Any = 8 / 255,
    norm: str = "Linf",
    class_names: Sequence[str] | None = None,
    superclass_of: Sequence[int] | None = None,
    superclass_names: Sequence[str] | None = None,
    groups: Mapping[str, Sequence[Any]] | None = None,
    batch_size: int = 256,
    seed: int = 0,
    repeat: int = 1,
    out: str | Path | None = None,
    name: str = "",
    quiet: bool = True,
) -> ClassReport:
    """Audit any model that maps images in [0, 1] to logits, class by class.

    The model may be a torch module or a function; it is used in eval mode on its own device and
    left as it was. A function without gradients, or the path of an ONNX file, is a black box: only
    `clean` and `square` can be run, and the report says so. Images are uint8 or floats in [0, 1],
    shaped (n, channels, height, width). `attacks` are names, or attack objects of torchattacks,
    foolbox or ART; `eps` is one radius, or one per image. A model that draws random numbers is
    flagged in `report.about["flags"]`; `repeat` audits the mean of so many passes instead.
    `groups` are attributes of the images, such as {"camera": ["front", "rear", …]}, one entry per
    image: `report.by("camera")["pgd-20"].worst` (docs/groups.md).

    With `out` the verdicts are kept in that folder, batch by batch: what it holds is not attacked
    again, and `classwise report`, `diff` and `gate` read it. `name` is what they call the model; a
    function must have one, and another one whenever it answers differently.
    """
    if batch_size < 1:
        raise ClasswiseError(f"batch_size is {batch_size}; it must be at least 1")
    known, pixels, numbers, names = checked(model, images, labels, class_names)
    known, num_classes = mean_of_passes(known, repeat), len(names)
    if isinstance(known, BlackBox) and attacks is DEFAULT_ATTACKS:
        attacks = ("clean", "square")
    above = None if superclass_of is None else tuple(int(one) for one in superclass_of)
    words = None if superclass_names is None else tuple(str(one) for one in superclass_names)
    check_superclasses(num_classes, above, words)
    groupings = of_samples(groups, len(pixels))
    place = None
    if out is not None:
        place = _place(Path(out), model, known, name, repeat, data_hash(pixels, numbers, names),
                       describe("given images", names, above, words))  # fmt: skip
    facts: dict[str, Any] = {"attacks": attacks, "eps": eps, "norm": norm, "seed": seed}
    batches = Batches(pixels, numbers, torch.arange(len(pixels)), batch_size)
    found = audit_model(
        known,
        batches,
        num_classes=num_classes,
        place=place,
        quiet=quiet,
        **facts,
    )
    groupings = groupings if place is None else place.keep(groupings)
    report = class_report(found, names, above, words, groupings)
    flags = steady_flags(known, pixels, repeat)
    if place is None:
        flags += check_records(found, names)
    else:
        notes = notes_on(place, batches, len(pixels), facts, None)
        flags = place.remember(known, names, flags, notes=notes)
    report.about |= remarks(known, flags)
    return report


def _place(
    folder: Path,
    model: Any,
    known: LogitModel,
    name: str,
    repeat: int,
    data: str,
    about: dict[str, Any],
) -> Place:
    """Where audits of a given model are kept; one without weights is known by name or file."""
    spec = None
    if isinstance(model, str | Path):
        spec = " ".join(file_hash(path) for path in onnx_files(Path(model)))
    elif not isinstance(known, nn.Module):
        spec = name
    if spec is not None and spec and repeat > 1:
        spec = f"{spec} mean of {repeat}"
    called = name or (Path(model).stem if isinstance(model, str | Path) else type(model).__name__)
    place = Place.of(
        folder,
        known,
        recipe=called,
        weights="given",
        split="test",
        spec=spec,
        data=about,
        data_hash=data,
    )
    write_card(folder, called, about)
    return place
