"""Audit whatever the user points at: a run, a weights file, or a model of their own."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from classwise.attacks.condition import Condition
from classwise.attacks.names import parse_conditions
from classwise.attacks.threat import Threat
from classwise.auditing.first_look import first_look
from classwise.auditing.flags import Flag
from classwise.auditing.health import probe
from classwise.auditing.plan import Plan
from classwise.auditing.progress import Bar, warn
from classwise.auditing.question import parse_question
from classwise.auditing.run import run_audit
from classwise.auditing.sequential import Limits, audit_partly
from classwise.data.dataset import Dataset, DataSource
from classwise.data.sources import choose_split, open_data
from classwise.data.splits import balanced_subset
from classwise.data.view import View
from classwise.doors.audit import BLACK_BOX_ATTACKS, DEFAULT_ATTACKS
from classwise.doors.findings import findings
from classwise.errors import ClasswiseError, unknown
from classwise.judging.audits import AuditedWeights
from classwise.judging.group_files import read_table
from classwise.models import build_model
from classwise.models.normalised import Normalisation
from classwise.models.subject import Subject
from classwise.record.card import write_card
from classwise.record.record import Record
from classwise.record.run_folder import load_model
from classwise.record.tensors import read_tensors
from classwise.spelling import average_and_keep
from classwise.training.config import choose_device
from classwise.training.run import Run
from classwise.training.state_dict import load_whole

PROBED = 200  # images that a health check looks at


@dataclass(frozen=True)
class Wish:
    """What an audit of a target was asked for, in the user's words; nothing is parsed yet."""

    target: str  # a run folder, a weights file, module:callable, or an .onnx file
    network: str | None = None  # module:callable of a run or file that was made with one
    data: str | None = None
    attacks: str | None = None
    eps: float | str | None = None
    norm: str | None = None
    weights: str = ""
    split: str = ""  # test, train or all; where nothing is said, what the model has not seen
    limit: int = 0  # so many images, balanced; 0 is all
    batch_size: int = 256
    seed: int = 0
    minutes: float | None = None  # audit as much as fits
    question: str | None = None  # stop as soon as it is settled
    health: bool = False  # probe for signs of a broken evaluation
    repeat: int = 1  # audit the mean of so many passes
    normalise: Any = None  # what the model expects and does not do itself
    groups: Path | None = None  # a table of attributes of the split's images
    folder: Path | None = None  # where to keep the audits of what is no run
    device: str = "auto"
    quiet: bool = False


def audit_target(wish: Wish) -> list[AuditedWeights]:
    """Audit what a user points at and keep the predictions in its run folder, or in `folder`.

    What their ledger already holds is not run again. With `minutes` or a `question` only as much
    is audited as fits or is needed; `report.about["note"]` says what came of it. Signs of a broken
    evaluation are in `report.about["flags"]`.
    """
    place = _Place.of(wish)
    source = open_data(place.data)
    images, split, words = _images(source, wish.split, place.trained_on)
    groupings = {} if wish.groups is None else read_table(wish.groups, len(images))
    data = View.of(images, source.name)
    if wish.limit:
        # Numbers of the whole split, so that a small audit is a beginning of the large one.
        data = data.take(balanced_subset(images.labels, wish.limit, seed=0))
    asked = None if wish.question is None else parse_question(wish.question, data.class_names)
    home, began = choose_device(wish.device), time.monotonic()
    data = data.on(home)
    audits: list[AuditedWeights] = []
    conditions: tuple[Condition, ...] = ()
    for name, recipe, model in _models(wish, place.run, images):
        model = model.to(home) if isinstance(model, nn.Module) else model
        subject = Subject.of(
            model,
            images.images,
            images.num_classes,
            width=wish.batch_size,
            passes=wish.repeat,
            normalisation=None if wish.normalise is None else Normalisation.of(wish.normalise),
        )
        conditions = conditions or _conditions(wish, place, subject)  # read once for all weights
        plan = Plan(subject, data, conditions)
        record = place.record(plan, recipe, name, split)
        looks = first_look(subject, data)
        if looks and not wish.quiet:  # before hours are spent on it
            for flag in looks:
                print(f"{recipe} {name}: {flag}", file=sys.stderr)
        # all weights of a run share the minutes; each gets one batch at the least
        left = wish.minutes
        if left is not None and audits:
            left = max(left - (time.monotonic() - began) / 60, 1e-9)
        with Bar(wish.quiet, f"{recipe} {name}") as bar:
            if asked is None and left is None:
                partly, found = None, run_audit(plan, record, bar)
            else:
                few = min(wish.batch_size, max(16, min(64, len(data) // 40)))
                limits = Limits(asked, left, batch_size=few, seed=wish.seed)
                partly = audit_partly(plan, record, bar, limits)
                found = partly.found
        probed = _probed(subject, data, place.threat) if wish.health else None
        report = findings(plan, found, record, groupings, partly=partly, probed=probed, looks=looks)
        report.about["images"] = words
        run_name = place.folder.name if place.folder else wish.target
        audits.append(AuditedWeights(run_name, recipe, name, split, report, partly))
    return audits


@dataclass(frozen=True)
class _Place:
    """What a target says of itself, and where its audits are kept."""

    run: Run | None
    folder: Path | None
    data: str
    threat: Threat
    trained_on: str | None  # hash of the training images, where it is known

    @classmethod
    def of(cls, wish: Wish) -> _Place:
        """Look at what the user points at."""
        target, folder = wish.target, wish.folder
        run = Run(Path(target)) if Path(target).is_dir() else None
        if run and folder and folder.resolve() != run.path.resolve():
            raise ClasswiseError(
                f"the audits of a run are kept in it: leave out --out {folder}, or audit one of "
                f"its files, such as {run.path}/weights/last.safetensors"
            )
        config = run.config if run else None
        data = wish.data or (config.data if config else None)
        if data is None:
            if not Path(target).exists() and ":" not in target:
                raise _no_target(target)
            raise ClasswiseError(f"{target} does not say what data it was made for; add --data")
        eps, norm = (8 / 255, "Linf") if config is None else (config.eps_of_judge, config.norm)
        threat = Threat.of(eps if wish.eps is None else wish.eps, wish.norm or norm)
        about = run.about["data"] if run else _data_of_file(target)
        seen = about.get("train_hash") if isinstance(about, dict) else None
        return cls(run, run.path if run else folder, data, threat, seen)

    def record(self, plan: Plan, recipe: str, weights: str, split: str) -> Record | None:
        """Where the audits of some weights are kept."""
        if self.folder is None:
            return None
        if self.run is None:
            write_card(self.folder, recipe, plan.data.about())
        record = Record.of(
            self.folder, plan.subject, plan.data, recipe=recipe, weights=weights, split=split
        )
        warn(record.mend())
        return record


def _data_of_file(target: str) -> object:
    """What a weights file of ours says of its data; nothing of anything else."""
    if not Path(target).is_file() or not target.endswith(".safetensors"):
        return {}
    return read_tensors(Path(target))[1].get("data", {})


def _images(source: DataSource, split: str, trained_on: str | None) -> tuple[Dataset, str, str]:
    """The images to audit, the name of their split, and words that say which they are.

    Data that came undivided have no test part of their own: a model that was trained on two thirds
    of them is audited on what it has not seen, any other on all.
    """
    if not split:
        mine = trained_on is not None and trained_on == source.train.content_hash
        split = "all" if source.set_aside and not mine else "test"
    images = choose_split(source, split)
    count, of = len(images), len(source.train) + len(source.test)
    if split == "all":
        words = f"all {count} images of {source.name}"
    elif source.set_aside:
        which = "set aside for testing" if split == "test" else "that are for training"
        words = f"{count} of the {of} images of {source.name}, the part {which}"
    else:
        words = f"the {count} {split} images of {source.name}"
    if not count:
        raise ClasswiseError(f"{words}: there are none; audit all of them with --split all")
    return images, split, words


def _conditions(wish: Wish, place: _Place, subject: Subject) -> tuple[Condition, ...]:
    attacks = wish.attacks or (BLACK_BOX_ATTACKS if subject.black_box else DEFAULT_ATTACKS)
    return parse_conditions(attacks, place.threat, wish.seed)


def _probed(subject: Subject, data: View, threat: Threat) -> list[Flag]:
    """Probe a model on a few images of every class."""
    whole = replace(data, rows=None)
    return probe(subject, whole.take(balanced_subset(data.labels, PROBED, seed=0)), threat)


def _models(
    wish: Wish, run: Run | None, images: Dataset
) -> Iterator[tuple[str, str, nn.Module | Path]]:
    """(weights name, recipe name, model or ONNX file) of all to audit."""
    target, network = wish.target, wish.network
    file = Path(target).is_file() or target.endswith(".safetensors")
    if network is not None and (target.endswith(".onnx") or not (run or file)):
        raise ClasswiseError(
            f"--model {network} is for runs and weights files that were made with a model of your "
            f"own; {target} is none"
        )
    if wish.weights and (target.endswith(".onnx") or file):
        raise ClasswiseError(f"{target} has its weights in it; leave out --weights {wish.weights}")
    if run is not None:
        _same_classes(target, run.about["data"]["class_names"], images)
        for name in _chosen_weights(run, wish.weights):
            yield name, run.about["recipe_name"], run.model(name, network)
    elif target.endswith(".onnx"):
        yield "given", Path(target).stem, Path(target)
    elif file:
        model, about = load_model(Path(target), network)
        _same_classes(target, about["data"]["class_names"], images)
        yield about["weights"], about["recipe"], model
    elif ":" in target:
        mean, deviation = images.channel_statistics
        model = build_model(
            target,
            num_classes=images.num_classes,
            channels=images.channels,
            mean=mean,
            deviation=deviation,
        )
        if wish.weights:
            load_whole(model, _weights_of(wish))
        yield "given", target, model
    else:
        raise _no_target(target)


def _weights_of(wish: Wish) -> Path:
    """The file whose weights a model of the user's own is to have."""
    if not Path(wish.weights).is_file():
        raise ClasswiseError(
            f"there is no file {wish.weights}; beside {wish.target}, --weights names a file of its "
            "weights, such as model.safetensors or model.pth"
        )
    return Path(wish.weights)


def _no_target(target: str) -> ClasswiseError:
    return ClasswiseError(
        f"{target} is neither a run folder, nor a weights file, nor an ONNX file, "
        "nor module:callable"
    )


def _chosen_weights(run: Run, wanted: str) -> list[str]:
    """By default the final weights of the model and of each of its averages."""
    there = run.weights
    if not there:
        raise ClasswiseError(f"{run.path} has no weights yet; train it for at least one epoch")
    if wanted == "all":
        return there
    names = wanted.split(",") if wanted else [n for n in there if average_and_keep(n)[1] == "last"]
    for name in names:
        if name not in there:
            raise unknown(f"weights of {run.path}", name, there)
    return names


def _same_classes(target: str, trained: list[str], images: Dataset) -> None:
    if tuple(trained) != images.class_names:
        raise ClasswiseError(
            f"{target} was trained on {len(trained)} classes ({', '.join(trained[:3])}, …), but "
            f"the data have {images.num_classes} ({', '.join(images.class_names[:3])}, …)"
        )
