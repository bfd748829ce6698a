"""Audit whatever the user points at: a run, a weights file, or a model of their own."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor, nn

from classwise.attacks.condition import Condition
from classwise.attacks.names import parse_conditions
from classwise.attacks.threat import Threat
from classwise.auditing.first_look import first_look
from classwise.auditing.flags import Flag
from classwise.auditing.health import probe
from classwise.auditing.plan import Plan
from classwise.auditing.progress import Bar, warn
from classwise.auditing.question import Question, parse_question
from classwise.auditing.run import run_audit
from classwise.auditing.sequential import Limits, audit_partly
from classwise.content import content_of
from classwise.data.dataset import Dataset, DataSource
from classwise.data.sources import choose_split, fetches, open_data
from classwise.data.splits import balanced_subset
from classwise.data.view import View
from classwise.doors.audit import BLACK_BOX_ATTACKS, DEFAULT_ATTACKS
from classwise.doors.findings import findings
from classwise.doors.pointed_at import check_target, models_of, no_target, normalisation_left
from classwise.doors.wish import Wish
from classwise.errors import ClasswiseError, cut
from classwise.files import given_path
from classwise.judging.audits import AuditedWeights
from classwise.judging.group_files import read_table
from classwise.judging.groups import Grouping, of_attributes
from classwise.judging.imagenet import groups_named, real_labels
from classwise.judging.truth import ManyLabels
from classwise.models.preparation import Preparation, configured_for
from classwise.models.subject import Subject
from classwise.record.card import write_card
from classwise.record.record import Record
from classwise.record.state_dict import file_and_key
from classwise.record.tensors import read_tensors, written_here
from classwise.training.config import choose_device
from classwise.training.run import Run

PROBED = 200  # images that a health check looks at


def audit_target(wish: Wish) -> list[AuditedWeights]:
    """Audit what a user points at and keep the predictions in its run folder, or in `folder`.

    What their ledger already holds is not run again. With `minutes` or a `question` only as much
    is audited as fits or is needed; `report.about["note"]` says what came of it. Signs of a broken
    evaluation are in `report.about["flags"]`.
    """
    place = _Place.of(wish)
    source = open_data(place.data)
    images, split, words = _images(source, wish.split, place.trained_on)
    groupings, many = of_attributes(images.attributes)
    groupings |= {} if wish.groups is None else _groupings(wish.groups, images)
    words += f" ({', '.join(many)}: too many groups to report)" if many else ""
    truth = None if wish.real is None else _truth(wish.real, images)
    data = View.of(images, source.name)
    if wish.limit:
        # Numbers of the whole split, so that a small audit is a beginning of the large one.
        data = data.take(balanced_subset(images.labels, wish.limit, seed=0))
        words = f"{len(data)}, balanced over the classes, of {words}"
    asked = None if wish.question is None else parse_question(wish.question, data.class_names)
    home, began = choose_device(wish.device), time.monotonic()
    data = data.on(home)
    audits: list[AuditedWeights] = []
    conditions: tuple[Condition, ...] = ()
    for name, recipe, model, flags in models_of(wish, place.run, images):
        model = model.to(home) if isinstance(model, nn.Module) else model
        subject = Subject.of(
            model,
            images.pixels if data.rows is None else images.pixels.take(data.rows),
            images.num_classes,
            width=wish.batch_size,
            passes=wish.repeat,
            name="" if isinstance(model, nn.Module | Path) else content_of(model).hex(),
            wants=place.wants(wish, model, images.pixels[:1]),
            output=wish.output,
        )
        conditions = conditions or _conditions(wish, place, subject)  # read once for all weights
        plan = Plan(subject, data, conditions)
        record = place.record(plan, recipe, name, split)
        looks = [*flags, *first_look(subject, data)]
        if looks and not wish.quiet:  # before hours are spent on it
            for flag in looks:
                warn(f"{recipe} {name}: {flag}")
        # all weights of a run share the minutes; each gets one batch at the least
        left = wish.minutes
        if left is not None and audits:
            left = max(left - (time.monotonic() - began) / 60, 1e-9)
        limits = _limits(asked, left, wish, len(data))
        with Bar(wish.quiet, f"{recipe} {name}") as bar:
            partly = audit_partly(plan, record, bar, limits) if limits else None
            found = run_audit(plan, record, bar) if partly is None else partly.found
        probed = _probed(subject, data, place.threat) if wish.health else None
        report = findings(
            plan, found, record, groupings, truth, partly=partly, probed=probed, looks=looks
        )
        few = "" if partly is None or partly.whole else f"{len(partly.found[0].sample)} of "
        report.about["images"] = "; ".join(filter(None, [few + words, plan.limits]))
        run_name = place.folder.name if place.folder else wish.target
        audits.append(AuditedWeights(run_name, recipe, name, split, report, partly))
    return audits


def _limits(asked: Question | None, minutes: float | None, wish: Wish, count: int) -> Limits | None:
    """When an audit stops early; None where it goes on to the last image."""
    if asked is None and minutes is None:
        return None
    few = min(wish.batch_size, max(16, min(64, count // 40)))
    return Limits(asked, minutes, batch_size=few, seed=wish.seed)


@dataclass(frozen=True)
class _Place:
    """What a target says of itself, and where its audits are kept."""

    run: Run | None
    folder: Path | None
    data: str
    threat: Threat
    trained_on: str | None  # hash of the training images, where it is known
    trained_here: bool

    @classmethod
    def of(cls, wish: Wish) -> _Place:
        """Look at what the user points at."""
        target, folder = wish.target, wish.folder
        check_target(target)
        run = Run(Path(target)) if Path(target).is_dir() else None
        if run and folder and folder.resolve() != run.path.resolve():
            raise ClasswiseError(
                f"the audits of a run are kept in it: leave out --out {folder}, or audit one of "
                f"its files, such as {run.path}/weights/last.safetensors"
            )
        config = run.config if run else None
        data = wish.data or (config.data if config else None)
        if data is None:
            if not file_and_key(target)[0].exists() and ":" not in target:
                raise no_target(target)
            raise ClasswiseError(f"{target} does not say what data it was made for; add --data")
        if wish.data is None and fetches(data):
            raise ClasswiseError(
                f"{target} says that its data are {data}, which may come from the network; if that "
                f"is what you want, say so: --data '{data}'"
            )
        eps, norm = (8 / 255, "Linf") if config is None else (config.eps_of_judge, config.norm)
        threat = Threat.of(eps if wish.eps is None else wish.eps, wish.norm or norm)
        about = run.about["data"] if run else _data_of_file(target)
        seen = about.get("train_hash") if isinstance(about, dict) else None
        return cls(run, run.path if run else folder, data, threat, seen, bool(about))

    def wants(self, wish: Wish, model: object, images: Tensor) -> Preparation:
        """What the model expects and does not do itself; one that was trained here does it."""
        own = None if self.trained_here else configured_for(model, images)
        left = normalisation_left(wish)
        return Preparation.of(left, wish.resize, wish.crop, wish.channels, configured=own)

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
    if not written_here(Path(target)):
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
    found = parse_conditions(attacks, place.threat, wish.seed)
    if not wish.health:  # its probe attacks within the radius, too
        _refuse_idle_radius(found, place.threat, wish)
    return found


def _refuse_idle_radius(conditions: tuple[Condition, ...], threat: Threat, wish: Wish) -> None:
    """Refuse a radius or a norm that was asked for although nothing attacks within it."""
    named = ", ".join(one.name for one in conditions)
    if wish.norm is not None and not any(one.threat for one in conditions):
        raise ClasswiseError(f"--norm {wish.norm} is not used: {named} attacks nothing")
    if wish.eps is not None and not any(one.threat is threat for one in conditions):
        raise ClasswiseError(
            f"--eps {cut(wish.eps, 40)} is not used: {named} attacks nothing, or states its own "
            "radius; leave it out"
        )


def _groupings(groups: Path, images: Dataset) -> dict[str, Grouping]:
    """A table of the user's own, or the groups that a word stands for."""
    known = groups_named(str(groups))
    return read_table(groups, len(images)) if known is None else known(images.labels)


def _truth(real: str, images: Dataset) -> ManyLabels:
    if real == "imagenet":
        return real_labels(images.labels)
    return ManyLabels.read(given_path(real), len(images), images.num_classes)


def _probed(subject: Subject, data: View, threat: Threat) -> list[Flag]:
    """Probe a model on a few images of every class."""
    whole = replace(data, rows=None)
    return probe(subject, whole.take(balanced_subset(data.labels, PROBED, seed=0)), threat)
