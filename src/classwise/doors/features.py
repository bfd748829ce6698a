"""Data sets that carry only some features of others, made with the model of a run.

Every image is a function of its number, the run and the settings, so that pieces can be made in any
batch and after any interruption. What is made is kept beside the file until it is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from classwise.attacks.features import (
    RESTORED,
    FeatureSettings,
    feature_targets,
    towards_class,
    towards_features,
    unrelated,
)
from classwise.auditing.progress import Bar
from classwise.auditing.run import pieces
from classwise.data.dataset import Dataset, DataSource
from classwise.data.sources import open_data, with_option
from classwise.data.splits import balanced_subset
from classwise.data.view import View
from classwise.errors import ClasswiseError
from classwise.files import file_hash, write_atomically
from classwise.locks import FolderLock
from classwise.models.penultimate import penultimate
from classwise.models.subject import Subject
from classwise.record.tensors import read_tensors, write_tensors
from classwise.sealed import read_sealed, sealed_text
from classwise.training.config import choose_device
from classwise.training.run import Run
from classwise.types import Batch


@dataclass(frozen=True)
class FeatureSet:
    """A feature data set on disk, and what is known of how it was made."""

    path: Path
    about: dict[str, Any]

    @property
    def data(self) -> str:
        """How the data set is opened; what may be done to its images is as in the original."""
        plain, options = f"npz:{self.path}", self.about["options"]
        return with_option(plain, options) if options else plain


def make_features(
    run: str | Path,
    kind: str,
    out: str | Path,
    *,
    weights: str = "last",
    network: str | None = None,
    head: str | None = None,
    limit: int = 0,
    batch_size: int = 256,
    device: str = "auto",
    quiet: bool = True,
    **settings: Any,
) -> FeatureSet:
    """Make a robust, nonrobust, random or deterministic feature set of a run's training images.

    Its test part is that of the original data. `settings` are `steps`, `step`, `eps` and `seed`.
    Where it broke off before, it goes on.
    """
    how, path = FeatureSettings.of(kind, **settings), Path(out)
    if path.suffix != ".npz":
        raise ClasswiseError(f"cannot write {path.name}; feature sets are .npz files")
    if head is not None and kind not in RESTORED:
        raise ClasswiseError(f"head={head} has no effect on {kind} features; leave it out")
    trained = Run(Path(run))
    source = open_data(trained.config.data)
    home = choose_device(device)
    model = trained.model(weights, network).to(home)
    subject = Subject.of(model, source.train.images, source.train.num_classes, width=batch_size)
    rows = balanced_subset(source.train.labels, limit or len(source.train), seed=0)
    about = {
        "run": trained.name,
        "recipe": trained.about.get("recipe_name", ""),
        "weights": weights,
        "model_hash": subject.identity,
        "data": trained.config.data,
        "data_hash": source.train.content_hash,
        "images": len(rows),
        **asdict(how),
        "norm": "L2",
        "notes": _notes(trained, how),
    }
    about["identity"] = _identity(about, rows, head)
    known = _known(path, about["identity"])
    if known is not None:
        return known
    work = _Work(model, subject, source.train, how, head, path.with_name(f"{path.name}.parts"))
    # The lock stands beside the pieces: it must outlive their folder.
    with FolderLock(path.parent, "making features", name=f".{path.name}.lock") as lock:
        known = _known(path, about["identity"])  # another process may have made it meanwhile
        if known is not None:
            return known
        made = work.complete(rows, about["identity"], quiet, f"{kind} features")
        about |= _outcome(how, made["outcome"]) | {"options": _options(source.train)}
        lock.check()
        found = _write(path, about, source, made)
        shutil.rmtree(work.folder, ignore_errors=True)
        return found


@dataclass(frozen=True)
class _Work:
    """What makes the images, piece by piece."""

    model: nn.Module
    subject: Subject
    data: Dataset
    how: FeatureSettings
    head: str | None
    folder: Path

    def complete(self, rows: Tensor, identity: str, quiet: bool, title: str) -> dict[str, Tensor]:
        """All images, those that are there already read back."""
        parts = self._read(identity, len(rows))
        done = sum(len(part["labels"]) for part in parts)
        with Bar(quiet, title) as bar, contextlib.ExitStack() as held:
            held.enter_context(self.subject.asked())
            bar.begin("images", len(rows), done)
            features = None
            if self.how.kind in RESTORED:
                features = held.enter_context(
                    penultimate(self.model, self.subject.num_classes, self.head)
                )
            for piece in pieces(rows[done:].numpy(), self.subject.width):
                part = self._make(torch.from_numpy(piece), features)
                said = {"identity": identity, "begin": done}
                write_tensors(self.folder / f"{done:09d}.safetensors", part, said)
                parts.append(part)
                done += len(piece)
                bar.advance(len(piece))
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def _make(self, rows: Tensor, features: Any) -> dict[str, Tensor]:
        view = View.of(self.data, "features")
        given = view.batch(rows)
        images = self.subject.take(given.images)
        batch = Batch(images, given.labels.to(images.device), given.index)
        labels = feature_targets(self.how, batch, self.subject.num_classes)
        if features is None:
            made = towards_class(self.subject.logits, batch, labels, self.how)
        else:
            others = unrelated(self.how, rows, len(self.data))
            start = self.subject.take(view.batch(others).images)
            made = towards_features(features, images, start, self.how)
        stored = (made * 255).round().to(torch.uint8)
        again = self.subject.take(stored)
        with torch.no_grad():  # of the images as they are stored
            if features is None:
                outcome = (self.subject.logits(again).argmax(1) == labels).double()
            else:
                wanted = features(images)
                left, whole = ((features(x) - wanted).norm(dim=1) for x in (again, start))
                outcome = (left / whole.clamp(min=1e-12)).double()
        plain = stored.cpu().contiguous()
        return {"images": plain, "labels": labels.cpu(), "outcome": outcome.cpu()}

    def _read(self, identity: str, most: int) -> list[dict[str, Tensor]]:
        """The pieces that are there, in order; those of another set are refused."""
        found, done = [], 0
        for path in sorted(self.folder.glob("*.safetensors")):
            part, about = read_tensors(path)
            if about.get("identity") != identity:
                raise ClasswiseError(
                    f"{self.folder} holds pieces of another feature set; delete that folder, or "
                    "choose another --out"
                )
            if about.get("begin") != done or done + len(part["labels"]) > most:
                raise ClasswiseError(f"{self.folder} lacks pieces; delete it and begin again")
            found.append(part)
            done += len(part["labels"])
        return found


def _known(path: Path, identity: str) -> FeatureSet | None:
    """The file as it was made before; another one is not written over."""
    if not path.exists():
        return None
    card = _card(path)
    remedy = "delete both files, or choose another --out"
    about = read_sealed(card, remedy) if card.exists() else {}
    if about.get("identity") != identity:
        raise ClasswiseError(
            f"{path} exists and is not this feature set (another run, kind or setting); {remedy}"
        )
    if about.get("file_hash") != file_hash(path):
        raise ClasswiseError(f"{path} is not as it was written, by {card.name}; {remedy}")
    return FeatureSet(path, about)


def _write(
    path: Path, about: dict[str, Any], source: DataSource, made: dict[str, Tensor]
) -> FeatureSet:
    train, test = source.train, source.test
    arrays: dict[str, Any] = {
        "train_images": made["images"].numpy(),
        "train_labels": made["labels"].numpy(),
        "test_images": test.images.numpy(),
        "test_labels": test.labels.numpy(),
        "class_names": np.array(train.class_names),
    }
    if train.superclass_of is not None:
        arrays["superclass_of"] = np.array(train.superclass_of)
    if train.superclass_names is not None:
        arrays["superclass_names"] = np.array(train.superclass_names)
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    content = stream.getvalue()
    digest = hashlib.blake2b(content, digest_size=8).hexdigest()  # as `file_hash` has it
    about = {"format": 1, **about, "file_hash": digest}
    write_atomically(_card(path), sealed_text(about))  # first: without its file it is made again
    write_atomically(path, content)
    return FeatureSet(path, about)


def _card(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _identity(about: dict[str, Any], rows: Tensor, head: str | None) -> str:
    """Sixteen hex digits over all that decides an image."""
    names = ("model_hash", "data_hash", "kind", "steps", "step", "eps", "seed")
    said = json.dumps([*(about[name] for name in names), head, rows.tolist()])
    return hashlib.blake2b(said.encode(), digest_size=8).hexdigest()


def _outcome(how: FeatureSettings, outcome: Tensor) -> dict[str, float]:
    name = "feature_distance_left" if how.kind in RESTORED else "reached_target"
    return {name: round(float(outcome.mean()), 6)}


def _options(data: Dataset) -> str:
    """What the data say of their images and an .npz cannot hold."""
    said = [] if data.mirrored else ["mirrored=false"]
    return ", ".join([*said, *([] if data.moved is None else [f"moved={data.moved}"])])


def _notes(run: Run, how: FeatureSettings) -> list[str]:
    """Where the run is not the kind of model that the paper makes these features with."""
    plain = "clean" in run.about.get("recipe", {})
    if how.kind == "robust" and plain:
        return [f"{run.name} was trained without attacks: its features are not robust ones"]
    if how.kind == "robust" and run.config.norm != "L2":
        return [f"{run.name} was trained against {run.config.norm}; the paper's model against L2"]
    if how.kind != "robust" and not plain:
        return [f"{run.name} was trained against attacks; the paper takes a plainly trained model"]
    return []
