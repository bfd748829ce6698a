"""Audit whatever the user points at: a run, a weights file, or a model of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from classwise.attacks.averaged import mean_of_passes
from classwise.attacks.ball import parse_norm, radii
from classwise.attacks.blackbox import BlackBox, onnx_files, open_onnx
from classwise.auditing.evaluate import class_report, progress_bar, remarks, steady_flags
from classwise.auditing.flags import Flag, check_records
from classwise.auditing.group_files import read_table
from classwise.auditing.health import check_health
from classwise.auditing.kept import Place, audit_model, known_under_all, notes_on
from classwise.auditing.ledger import piece
from classwise.auditing.predictions import AuditedWeights, describe, write_card
from classwise.auditing.sequential import PartialAudit, examine, parse_question
from classwise.data.batches import Batches
from classwise.data.dataset import Dataset
from classwise.data.sources import choose_split, open_data
from classwise.data.splits import balanced_subset
from classwise.errors import ClasswiseError, unknown
from classwise.models import build_model
from classwise.spelling import average_and_keep
from classwise.training.config import choose_device
from classwise.training.run import Run, file_hash, load_model
from classwise.types import LogitModel

PROBED = 200  # images that a health check looks at


def audit_target(
    target: str,
    *,
    network: str | None = None,
    data: str | None = None,
    attacks: str | None = None,
    eps: float | str | None = None,
    norm: str | None = None,
    weights: str = "",
    split: str = "test",
    limit: int = 0,
    batch_size: int = 256,
    seed: int = 0,
    minutes: float | None = None,
    question: str | None = None,
    health: bool = False,
    repeat: int = 1,
    groups: Path | None = None,
    folder: Path | None = None,
    device: str = "auto",
    quiet: bool = False,
) -> list[AuditedWeights]:
    """Audit a target and keep the predictions in its run folder, or in `folder`.

    What their ledger already holds is not run again. With `minutes` or a `question` only as much
    is audited as fits or is needed; `report.about["note"]` says what came of it. Signs of a broken
    evaluation are in `report.about["flags"]`; `health` probes for more. `repeat` audits the mean
    of so many passes of a model that draws random numbers. `groups` is a table of attributes of
    the split's images (`read_table`), kept beside the audits. `network` is the `module:callable` of
    a run or weights file that was made with one.
    """
    run = Run(Path(target)) if Path(target).is_dir() else None
    if run and folder and folder.resolve() != run.path.resolve():
        raise ClasswiseError(
            f"the audits of a run are kept in it: leave out --out {folder}, or audit one of its "
            f"files, such as {run.path}/weights/last.safetensors"
        )
    where, config = (run.path, run.config) if run else (folder, None)
    data = data or (config.data if config else None)
    if data is None:
        if not Path(target).exists() and ":" not in target:
            raise _no_target(target)
        raise ClasswiseError(f"{target} does not say what data it was made for; add --data")
    source = open_data(data)
    images = choose_split(source, split)
    groupings = {} if groups is None else read_table(groups, len(images))
    # Numbers of the whole split, so that a small audit is a beginning of the large one.
    chosen = torch.arange(len(images))
    if limit:
        chosen = balanced_subset(images.labels, limit, seed=0)
    if eps is None:
        eps = config.eps_of_judge if config else 8 / 255
    if norm is None:
        norm = config.norm if config else "Linf"
    asked = None if question is None else parse_question(question, images.class_names)
    home = choose_device(device)
    about = describe(source.name, images.class_names, images.superclass_of, images.superclass_names)
    began = time.monotonic()
    batches = Batches.of(images.subset(chosen), batch_size, home, chosen)
    audits: list[AuditedWeights] = []
    for name, recipe, model, spec in _models(target, run, weights, images, network):
        if where is not None and run is None:
            write_card(where, recipe, about)
        model = mean_of_passes(model.to(home) if isinstance(model, nn.Module) else model, repeat)
        spec = spec and (spec if repeat == 1 else f"{spec} mean of {repeat}")
        black_box = isinstance(model, BlackBox)
        place = None
        if where is not None:
            place = Place.of(
                where,
                model,
                recipe=recipe,
                weights=name,
                split=split,
                spec=spec,
                data=about,
                data_hash=images.content_hash,
            )
        facts: dict[str, Any] = {
            "num_classes": images.num_classes,
            "attacks": attacks or ("clean,square" if black_box else "clean,pgd-20"),
            "eps": eps,
            "norm": norm,
            "seed": seed,
            "place": place,
        }
        partly = None
        if asked is None and minutes is None:
            found = audit_model(model, batches, **facts, quiet=quiet, title=f"{recipe} {name}")
        else:
            # all weights of a run share the minutes; each gets one batch at the least
            spent = (time.monotonic() - began) / 60
            left = None if minutes is None or not audits else max(minutes - spent, 1e-9)
            limits = {"question": asked, "minutes": left or minutes, "seed": seed}
            partly = _audit_partly(model, batches, images, limits, facts, quiet)
            found = partly.found
        note = None if partly is None else partly.words
        report = class_report(
            found,
            images.class_names,
            images.superclass_of,
            images.superclass_names,
            groupings if place is None else place.keep(groupings),
            unfinished="" if partly is None or partly.whole else partly.words,
        )
        seen = steady_flags(model, images.images, repeat)
        probed = _probed(model, images, eps, norm) if health else None
        if place is None:
            seen += check_records(found, images.class_names)
        else:
            notes = notes_on(place, batches, len(images), facts, note)
            seen = place.remember(model, images.class_names, seen, probed=probed, notes=notes)
        met = {flag.name for flag in probed or ()}
        flags = [*(probed or ()), *(flag for flag in seen if flag.name not in met)]
        report.about |= remarks(model, flags) | ({"note": note} if note else {})
        run_name = where.name if where else target
        audits.append(AuditedWeights(run_name, recipe, name, split, report, partly))
    return audits


def _probed(model: LogitModel, images: Dataset, eps: Any, norm: str) -> list[Flag]:
    """Probe a model on a few images of every class."""
    few = images.subset(balanced_subset(images.labels, PROBED, seed=0))
    ball = parse_norm(norm)
    radius = float(radii(eps, ball, 1)[0])
    return check_health(
        model, few.images, few.labels, class_names=images.class_names, eps=radius, norm=ball.name
    )


def _audit_partly(
    model: LogitModel,
    batches: Batches,
    images: Dataset,
    limits: dict[str, Any],
    facts: dict[str, Any],
    quiet: bool,
) -> PartialAudit:
    """Audit until a question is settled or time is up; then tidy the ledger."""
    title = str(limits["question"] or f"{limits['minutes']:g} minutes")
    place, known = facts["place"], np.arange(0)
    if place is not None:
        known = known_under_all(place, batches, facts)
        # Rows that are kept before the end must not pass for an audit if there is no end.
        begun = f"{title}: broken off before there was an answer; audit again, or in full"
        place.note(model, notes_on(place, batches, len(images), facts, begun))
    with progress_bar(quiet) as progress:
        task = progress.add_task(f"{title}: at most", total=len(batches.labels))
        partly = examine(
            batches,
            images.class_names,
            lambda batch: audit_model(model, batch, compact=False, **facts),
            batch_size=min(batches.batch_size, max(16, min(64, len(batches.labels) // 40))),
            advance=partial(progress.advance, task),
            **limits,
        )
    if place is not None:
        rows = torch.isin(batches.origin.cpu(), torch.from_numpy(partly.found[0].sample))
        done = piece(batches, rows.nonzero().squeeze(1).numpy())
        audit_model(model, done, **facts)
    return replace(partly, known=int(np.isin(partly.found[0].sample, known).sum()))


def _models(
    target: str, run: Run | None, weights: str, images: Dataset, network: str | None
) -> Iterator[tuple[str, str, LogitModel, str | None]]:
    """(weights name, recipe name, model, what else tells it from others) of all to audit."""
    file = Path(target).is_file() or target.endswith(".safetensors")
    if network is not None and (target.endswith(".onnx") or not (run or file)):
        raise ClasswiseError(
            f"--model {network} is for runs and weights files that were made with a model of your "
            f"own; {target} is none"
        )
    if run is not None:
        _same_classes(target, run.about["data"]["class_names"], images)
        for name in _chosen_weights(run, weights):
            yield name, run.about["recipe_name"], run.model(name, network), None
    elif target.endswith(".onnx"):
        box = open_onnx(Path(target))
        hashes = " ".join(file_hash(path) for path in onnx_files(Path(target)))
        yield "given", Path(target).stem, box, hashes
    elif file:
        model, about = load_model(Path(target), network)
        _same_classes(target, about["data"]["class_names"], images)
        yield about["weights"], about["recipe"], model, None
    elif ":" in target:
        mean, deviation = images.channel_statistics
        model = build_model(
            target,
            num_classes=images.num_classes,
            channels=images.channels,
            mean=mean,
            deviation=deviation,
        )
        yield "given", target, model, None
    else:
        raise _no_target(target)


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
