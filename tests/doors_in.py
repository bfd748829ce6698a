"""One row per door: every way in must give the same verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from classwise.judging.samples import read_samples
from classwise.models.asking import eval_mode
from classwise.recipe_text import parse_recipe
from classwise.record.rows import Predictions
from classwise.spelling import split_outside_brackets
from classwise.training.validate import Checker


def held(num_classes: int) -> nn.Module:
    """What the command line is pointed at: the very model of the scene."""
    return Scene(num_classes).model


@dataclass(frozen=True)
class Asked:
    """What a door shows: sample by sample, or only the right answers of each class."""

    rows: Predictions | None = None
    correct: Any = None  # of each sample
    hits: Any = None  # of each class


@dataclass(frozen=True)
class Door:
    """A way in, and the conditions that can be asked for there; all of them at once."""

    name: str
    ask: Callable[[Scene, tuple[str, ...], Path], Sequence[Asked]]
    takes: tuple[str, ...]

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


def _facts(scene: Scene, names: tuple[str, ...]) -> dict[str, Any]:
    return {"attacks": ",".join(names), "eps": scene.eps, "norm": scene.norm}


def _hits(report: Any) -> list[Asked]:
    return [Asked(hits=report[name].counts.confusion.diagonal().numpy()) for name in report]


def _from_audit(scene: Scene, names: tuple[str, ...], folder: Path) -> list[Asked]:  # noqa: ARG001
    facts = _facts(scene, names) | {"class_names": scene.class_names}
    return _hits(classwise.audit(scene.model, scene.pixels, scene.labels, **facts))


def _from_folder(scene: Scene, names: tuple[str, ...], folder: Path) -> list[Asked]:
    facts = _facts(scene, names) | {"class_names": scene.class_names}
    classwise.audit(scene.model, scene.pixels, scene.labels, out=folder / "kept", **facts)
    return _kept(folder / "kept", names)


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


def _from_command(scene: Scene, names: tuple[str, ...], folder: Path) -> list[Asked]:
    words = ["audit", "doors_in:held", "--data", data_file(scene, folder)]
    words += ["--attacks", ",".join(names), "--eps", str(scene.eps), "--norm", scene.norm]
    words += ["--out", str(folder / "kept"), "--device", "cpu", "--quiet"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return _kept(folder / "kept", names)


def _target(scene: Scene, names: tuple[str, ...], here: Path, **more: Any) -> Any:
    facts = _facts(scene, names) | {"data": data_file(scene, here), "device": "cpu", **more}
    (audited,) = audit_target(Wish("doors_in:held", quiet=True, **facts))
    return audited


def _from_target(scene: Scene, names: tuple[str, ...], folder: Path) -> list[Asked]:
    return _hits(_target(scene, names, folder).report)


def _from_question(scene: Scene, names: tuple[str, ...], folder: Path) -> list[Asked]:
    partial = _target(scene, names, folder, question="c1>=0.6").partial
    return [Asked(found) for found in partial.found]


def _from_minutes(scene: Scene, names: tuple[str, ...], folder: Path) -> list[Asked]:
    partial = _target(scene, names, folder, minutes=5.0, folder=folder / "kept").partial
    assert partial.whole
    return [Asked(found) for found in partial.found]


def _from_autoattack(scene: Scene, names: tuple[str, ...], folder: Path) -> list[Asked]:  # noqa: ARG001
    (suite,) = names
    members = split_outside_brackets(suite.removeprefix("suite(").removesuffix(")"), ",")
    attack = classwise.AutoAttack(
        scene.model, scene.norm, scene.eps, verbose=False, attacks_to_run=members, version="custom"
    )
    attack.run_standard_evaluation(scene.images, scene.labels)
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


def _from_object(scene: Scene, names: tuple[str, ...], folder: Path) -> list[Asked]:  # noqa: ARG001
    found = []
    for name in names:
        attack = OBJECTS[name](scene.model, scene.eps, norm=scene.norm)
        moved = attack(scene.images.double(), scene.labels)  # in the model's own precision
        with eval_mode(scene.model), torch.no_grad():
            predicted = scene.model(moved).argmax(1)
        found.append(Asked(correct=(predicted == scene.labels).numpy()))
    return found


def _from_health(scene: Scene, names: tuple[str, ...], folder: Path) -> list[Asked]:  # noqa: ARG001
    """A probe shows flags alone: here its rows are looked at on their way."""
    seen: list[Predictions] = []

    def heard(*given: Any) -> list[Predictions]:
        found = run_audit(*given)
        seen.extend(found)
        return found

    facts = {"eps": scene.eps, "norm": scene.norm, "steps": 3, "queries": 8}
    with patch("classwise.auditing.health.run_audit", heard):
        classwise.check_health(scene.model, scene.pixels, scene.labels, **facts)
    here = {one.condition: one for one in seen if np.allclose(one.radius, scene.eps)}
    return [Asked(here[name]) for name in names]


def _from_training(scene: Scene, names: tuple[str, ...], folder: Path) -> list[Asked]:  # noqa: ARG001
    slots = parse_recipe("at(steps=2)").slots
    batches = Batches(scene.pixels, scene.labels, torch.arange(COUNT), 5)
    base = slots.alike(scene.num_classes, scene.eps)
    checker = Checker({"valid": batches}, scene.num_classes, scene.threat(), 0, slots, base)
    seen = [Seen("valid", name) for name in names]
    counts = checker.look(scene.model, frozenset(seen), Moment(0, 1, 3))
    return [Asked(hits=counts[one].confusion.diagonal().numpy()) for one in seen]


NAMED = tuple(name for name in ASKED if ":" not in name)  # files cannot name code
FEW = ("clean", "pgd-3", SUITE, "conditions:Blur>pgd-3")  # where files are written: of each kind
DOORS = [
    Door("classwise.audit", _from_audit, ASKED),
    Door("classwise.audit with out", _from_folder, FEW),
    Door("the command line", _from_command, FEW),
    Door("audit_target", _from_target, ASKED),
    Door("a question", _from_question, ASKED),
    Door("minutes", _from_minutes, FEW),
    Door("AutoAttack", _from_autoattack, (SUITE,)),
    Door("attack objects", _from_object, tuple(OBJECTS)),
    Door("a health probe", _from_health, ("fgsm", "pgd-3(verdict=any)", "square(queries=8)")),
    Door("validation while training", _from_training, NAMED),
]
