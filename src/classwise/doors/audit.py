"""Audit a model that is at hand in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from classwise.attacks.names import check_made_for, parse_conditions
from classwise.attacks.threat import Threat
from classwise.auditing.first_look import first_look
from classwise.auditing.plan import Plan
from classwise.auditing.progress import Bar, warn
from classwise.auditing.run import run_audit
from classwise.data.loaders import images_and_labels
from classwise.data.view import View
from classwise.doors.findings import findings
from classwise.judging.groups import of_samples
from classwise.judging.metrics import ClassReport
from classwise.judging.truth import ManyLabels
from classwise.models.preparation import Preparation, configured_for
from classwise.models.subject import Subject
from classwise.record.card import write_card
from classwise.record.record import Record
from classwise.types import LogitModel

DEFAULT_ATTACKS = ("clean", "pgd-20")
BLACK_BOX_ATTACKS = ("clean", "square")


def audit(
    model: LogitModel | str,
    images: Any,
    labels: Any = None,
    *,
    attacks: str | Sequence[Any] = DEFAULT_ATTACKS,
    eps: float | str | Any = 8 / 255,
    norm: str = "Linf",
    class_names: Sequence[str] | None = None,
    superclass_of: Sequence[int] | None = None,
    superclass_names: Sequence[str] | None = None,
    groups: Mapping[str, Sequence[Any]] | None = None,
    true_labels: Sequence[Sequence[int]] | None = None,
    batch_size: int = 256,
    seed: int = 0,
    repeat: int = 1,
    normalise: Any = None,
    resize: Any = None,
    crop: Any = None,
    channels: str | None = None,
    output: str | int | None = None,
    channels_last: bool = False,
    out: str | Path | None = None,
    name: str = "",
    quiet: bool = True,
) -> ClassReport:
    """Audit any model that maps images in [0, 1] to logits, class by class.

    The model may be a torch module or a function, or the path of an ONNX file; it is used in eval
    mode on its own device and left as it was. A function without gradients is a black box: only
    `clean`, `square` and `smoothing` run. Images are uint8 or floats in [0, 1], shaped (n,
    channels, height, width), with `channels_last` (n, height, width, channels); a DataLoader or
    data set of torch, unshuffled, stands for images and labels. `attacks` are names, attack objects
    of ours, torchattacks, foolbox or ART, or your own image transforms; `pgd-10 on 200` attacks so
    many, balanced. `eps` is one radius, or one per image; `repeat` audits the mean of so many
    passes of a random model. `groups` are attributes of the images (docs/groups.md), `true_labels`
    lists of labels of which any is right (`report.relabelled`). `normalise`, `resize`, `crop` and
    `channels` are what it expects and does not do itself, `output` has its logits (docs/models.md).

    With `out` the verdicts are kept in that folder: what it holds is not attacked again. `name` is
    what reports call the model; a function must have one, another whenever it answers differently.
    """
    pixels, labels = images_and_labels(images, labels, channels_last)
    known = None if class_names is None else len(class_names)
    check_made_for(attacks, model)
    before = {"normalise": normalise, "resize": resize, "crop": crop, "channels": channels}
    asked: dict[str, Any] = {"width": batch_size, "passes": repeat, "name": name, "output": output}
    subject = subject_of(model, pixels, known, before, **asked)
    names = (class_names, superclass_of, superclass_names)
    data = View.given(pixels, labels, subject.num_classes, *names)
    truth = ManyLabels.given(true_labels, len(pixels), subject.num_classes)
    if subject.black_box and attacks is DEFAULT_ATTACKS:
        attacks = BLACK_BOX_ATTACKS
    plan = Plan(subject, data, parse_conditions(attacks, Threat.of(eps, norm, data.index), seed))
    called = name or (Path(model).stem if isinstance(model, str | Path) else type(model).__name__)
    record = None if out is None else record_in(Path(out), subject, data, called)
    looks = first_look(subject, data)
    with Bar(quiet) as bar:
        found = run_audit(plan, record, bar)
    return findings(plan, found, record, of_samples(groups, len(pixels)), truth, looks=looks)


def subject_of(
    model: Any, pixels: Tensor, num_classes: int | None, before: Mapping[str, Any], **asked: Any
) -> Subject:
    """The model that a user has at hand, behind what it expects or its own configuration says.

    `before` are `normalise` and, if wanted, `resize`, `crop` and `channels`.
    """
    wants = Preparation.of(**before, configured=configured_for(model, pixels))
    return Subject.of(model, pixels, num_classes, wants=wants, **asked)


def record_in(folder: Path, subject: Subject, data: View, called: str) -> Record:
    """The record in a folder of a model that was not trained here; damage in it is told."""
    record = Record.of(folder, subject, data, recipe=called, weights="given", split="test")
    write_card(folder, called, data.about())
    warn(record.mend())
    return record
