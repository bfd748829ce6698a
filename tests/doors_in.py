"""One row per door: every way in must give the same verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from conditions import (
    COUNT,
    Scene,
)
from torch import nn
from typer.testing import CliRunner

import classwise
from classwise.attacks.inner import Moment
from classwise.auditing.run import run_audit
from classwise.classes.settings import Seen
from classwise.cli import app
from classwise.data.batches import Batches
from classwise.doors import attacks as objects
from classwise.doors.targets import audit_target
from classwise.doors.wish import Wish
from classwise.errors import ClasswiseError
from classwise.judging.samples import read_samples
from classwise.models.asking import eval_mode
from classwise.recipe_text import parse_recipe
from classwise.record.rows import Predictions
from classwise.spelling import split_outside_brackets
from classwise.training.validate import Checker

HELD: list[Any] = []  # what the command line is pointed at, where it is not the plain scene's


def held(num_classes: int) -> nn.Module:
    """What the command line is pointed at: the very model of the scene."""
    return HELD[-1] if HELD else Scene(num_classes).model


def answering(images: Any) -> Any:
    """The same for a function of images."""
    return HELD[-1](images)


@dataclass(frozen=True)
class Asked:
    """What a door shows: sample by sample, or only the right answers of each class."""

    rows: Predictions | None = None
    correct: Any = None  # of each sample
    hits: Any = None  # of each class


@dataclass(frozen=True, eq=False)
class Visit:
    """What somebody brings to a door."""

    scene: Scene
    names: tuple[str, ...]
    folder: Path
    width: int = 256  # images that the model is asked about at a time
    answers: Callable[[Any], Any] | None = None  # a black box in the place of the scene's model
    kept: bool = False  # also where a door need not keep anything

    @property
    def model(self) -> Any:
        return self.answers or self.scene.model

    @property
    def facts(self) -> dict[str, Any]:
        scene = self.scene
        return {"attacks": ",".join(self.names), "eps": scene.eps, "norm": scene.norm}

    @property
    def given(self) -> dict[str, Any]:
        """The same for `classwise.audit`."""
        name = "" if self.answers is None else "a black box"
        more = {"class_names": self.scene.class_names, "batch_size": self.width, "name": name}
        return self.facts | more

    @contextmanager
    def pointed_at(self) -> Iterator[str]:
        """How the command line names the model."""
        HELD.append(self.model)
        try:
            yield "doors_in:held" if self.answers is None else "doors_in:answering"
        finally:
            HELD.pop()


@dataclass(frozen=True)
class Door:
    """A way in, and the conditions that can be asked for there; all of them at once."""

    name: str
    ask: Callable[[Visit], Sequence[Asked]]
    takes: tuple[str, ...]
    black_boxes: bool = True  # may come in here

    @property
    def few(self) -> tuple[str, ...]:
        """A few of them, where the question is another one."""
        return tuple(one for one in QUICK if one in self.takes)[:2]

    @property
    def still(self) -> tuple[str, ...]:
        """What draws nothing, so that images may stand in any order."""
        return tuple(one for one in STILL if one in self.takes) or ("suite(deepfool(steps=3))",)

    def __str__(self) -> str:
        return self.name


SUITE = "suite(apgd-ce(steps=2),square(queries=5))"
# What is asked at every door that can be asked for it.
ASKED = (
    "clean",
    "fgsm",
    "pgd-3",
    "pgd-3(verdict=any)",
    "apgd-ce(steps=3)",
    "apgd-t(steps=3,targets=3)",
    "fab-t(steps=3,targets=2)",
    "square(queries=8)",
    "deepfool(steps=3)",
    SUITE,
    "conditions:Blur>pgd-3",
)


QUICK = (SUITE, "pgd-3", "pgd-3(verdict=any)", "fab-t(steps=3,targets=2)", "fgsm")
STILL = ("clean", "fgsm")


def _hits(report: Any) -> list[Asked]:
    return [Asked(hits=report[name].counts.confusion.diagonal().numpy()) for name in report]


def _from_audit(visit: Visit) -> list[Asked]:
    scene = visit.scene
    return _hits(classwise.audit(visit.model, scene.pixels, scene.labels, **visit.given))


def _from_folder(visit: Visit) -> list[Asked]:
    scene, folder = visit.scene, visit.folder / "kept"
    classwise.audit(visit.model, scene.pixels, scene.labels, out=folder, **visit.given)
    return _kept(folder, visit.names)


def _kept(folder: Path, names: tuple[str, ...]) -> list[Asked]:
    found = read_samples(folder).conditions
    return [Asked(found[name]) for name in names]


def data_file(scene: Scene, folder: Path) -> str:
    """The images of a scene as a data set that the command line opens."""
    arrays = {
        f"{part}_{kind}": value.numpy()
        for part in ("train", "test")
        for kind, value in (("images", scene.pixels), ("labels", scene.labels))
    }
    np.savez(folder / "few.npz", **arrays, class_names=np.array(scene.class_names))
    return f"npz:{folder / 'few.npz'}"


def _from_command(visit: Visit) -> list[Asked]:
    scene, folder = visit.scene, visit.folder
    with visit.pointed_at() as target:
        words = ["audit", target, "--data", data_file(scene, folder)]
        words += ["--attacks", ",".join(visit.names), "--eps", str(scene.eps)]
        words += ["--norm", scene.norm, "--batch-size", str(visit.width)]
        words += ["--out", str(folder / "kept"), "--device", "cpu", "--quiet"]
        done = CliRunner().invoke(app, words)
    if done.exit_code == 2:
        raise ClasswiseError(done.stderr.strip())
    assert done.exit_code == 0, done.output
    return _kept(folder / "kept", visit.names)


def _target(visit: Visit, **more: Any) -> Any:
    facts = visit.facts | {"data": data_file(visit.scene, visit.folder), "device": "cpu", **more}
    with visit.pointed_at() as target:
        wish = Wish(target, quiet=True, batch_size=visit.width, **facts)
        (audited,) = audit_target(wish)
    return audited


def _from_target(visit: Visit) -> list[Asked]:
    return _hits(_target(visit).report)


def _from_question(visit: Visit) -> list[Asked]:
    partial = _target(visit, question="c0>=0.6").partial
    return [Asked(found) for found in partial.found]


def _from_minutes(visit: Visit) -> list[Asked]:
    partial = _target(visit, minutes=5.0, folder=visit.folder / "kept").partial
    assert partial.whole
    return [Asked(found) for found in partial.found]


def _from_autoattack(visit: Visit) -> list[Asked]:
    (suite,), scene = visit.names, visit.scene
    members = split_outside_brackets(suite.removeprefix("suite(").removesuffix(")"), ",")
    facts = {"verbose": False, "attacks_to_run": members, "version": "custom"}
    attack = classwise.AutoAttack(visit.model, scene.norm, scene.eps, **facts)
    kept = visit.folder / "kept" if visit.kept else None
    attack.run_standard_evaluation(scene.images, scene.labels, visit.width, state_path=kept)
    return [Asked(attack.predictions)]


OBJECTS: dict[str, Callable[..., Any]] = {
    "fgsm": objects.FGSM,
    "pgd-3": lambda model, eps, **facts: objects.PGD(model, eps, eps / 4, 3, **facts),
    "apgd-ce(steps=3)": lambda *given, **facts: objects.APGD(*given, steps=3, **facts),
    "apgd-t(steps=3,targets=3)": lambda *given, **facts: objects.APGDT(
        *given, steps=3, targets=3, **facts
    ),
    "fab-t(steps=3,targets=2)": lambda *given, **facts: objects.FAB(
        *given, steps=3, targets=2, **facts
    ),
    "square(queries=8)": lambda *given, **facts: objects.Square(*given, n_queries=8, **facts),
    "deepfool(steps=3)": lambda *given, **facts: objects.DeepFool(*given, steps=3, **facts),
}


def _from_object(visit: Visit) -> list[Asked]:
    found, scene = [], visit.scene
    images = scene.images.to(scene.dtype)  # in the model's own precision
    for name in visit.names:
        attack = OBJECTS[name](visit.model, scene.eps, norm=scene.norm)
        parts = zip(images.split(visit.width), scene.labels.split(visit.width), strict=True)
        moved = torch.cat([attack(*part) for part in parts])
        with eval_mode(scene.model), torch.no_grad():
            predicted = scene.model(moved).argmax(1)
        found.append(Asked(correct=(predicted == scene.labels).numpy()))
    return found


def _from_health(visit: Visit) -> list[Asked]:
    """A probe shows flags alone: here its rows are looked at on their way."""
    scene, seen = visit.scene, []

    def heard(*given: Any) -> list[Predictions]:
        found = run_audit(*given)
        seen.extend(found)
        return found

    facts = {"eps": scene.eps, "norm": scene.norm, "steps": 3, "queries": 8}
    with patch("classwise.auditing.health.run_audit", heard):
        images = (scene.pixels, scene.labels)
        classwise.check_health(visit.model, *images, batch_size=visit.width, **facts)
    here = {one.condition: one for one in seen if np.allclose(one.radius, scene.eps)}
    return [Asked(here[name]) for name in visit.names]


def _from_training(visit: Visit) -> list[Asked]:
    scene, slots = visit.scene, parse_recipe("at(steps=2)").slots
    batches = Batches(scene.pixels, scene.labels, torch.arange(COUNT), min(5, visit.width))
    base = slots.alike(scene.num_classes, scene.eps)
    checker = Checker({"valid": batches}, scene.num_classes, scene.threat(), 0, slots, base)
    seen = [Seen("valid", name) for name in visit.names]
    counts = checker.look(scene.model, frozenset(seen), Moment(0, 1, 3))
    return [Asked(hits=counts[one].confusion.diagonal().numpy()) for one in seen]


NAMED = tuple(name for name in ASKED if ":" not in name)  # files cannot name code
# where files are written: of each kind
FEW = ("clean", "fgsm", "pgd-3", SUITE, "square(queries=8)", "conditions:Blur>pgd-3")
PROBED = ("fgsm", "pgd-3(verdict=any)", "square(queries=8)")
DOORS = [
    Door("classwise.audit", _from_audit, ASKED),
    Door("classwise.audit with out", _from_folder, FEW),
    Door("the command line", _from_command, FEW),
    Door("audit_target", _from_target, ASKED),
    Door("a question", _from_question, ASKED),
    Door("minutes", _from_minutes, FEW),
    Door("AutoAttack", _from_autoattack, (SUITE,)),
    Door("attack objects", _from_object, tuple(OBJECTS)),
    # a black box is probed without attacks: `Plan` never sees it
    Door("a health probe", _from_health, PROBED, black_boxes=False),
    # who trains has gradients
    Door("validation while training", _from_training, NAMED, black_boxes=False),
]
KEEPING = {door.name: door for door in DOORS if door.ask in (_from_folder, _from_autoattack)}
