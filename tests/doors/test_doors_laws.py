"""Laws that every door keeps; `doors_in.DOORS` has one row for each."""

import json
import os
import subprocess
import sys
from pathlib import Path

import conditions
import numpy as np
import pytest
import torch
from conditions import COUNT, EPS, Row, Scene, same_verdicts
from doors_in import ASKED, DOORS, KEEPING, NAMED, OBJECTS, SUITE, Visit
from refusals import refused

import classwise
from classwise.attacks.condition import Condition
from classwise.doors import attacks as objects
from classwise.record.rows import select

every_door = pytest.mark.parametrize("door", DOORS, ids=str)


def hits_of(found, num_classes):
    return np.bincount(found.label[found.correct], minlength=num_classes).tolist()


@pytest.mark.usefixtures("untouched_random_state")
@pytest.mark.parametrize("norm", EPS)
@every_door
def test_every_door_gives_the_same_verdicts_and_leaves_no_trace(door, norm, tmp_path):
    scene = Scene(norm=norm)
    straight = [scene.found(Row(name)) for name in door.takes]
    model = scene.model.train()
    model.norm.eval()  # any mixture of modes comes back
    marks = [torch.full_like(weight, 3.0) for weight in model.parameters()]
    for weight, mark in zip(model.parameters(), marks, strict=True):
        weight.grad = mark
    before = {key: value.clone() for key, value in model.state_dict().items()}
    try:
        asked = door.ask(Visit(scene, door.takes, tmp_path))
        assert [part.training for part in model.modules()] == [True, True, False, True]
        assert all(w.grad is m for w, m in zip(model.parameters(), marks, strict=True))
        assert all(bool((mark == 3).all()) for mark in marks)
    finally:
        model.zero_grad()
        model.eval()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    for found, expected in zip(asked, straight, strict=True):
        assert 0 < int(expected.correct.sum()) < len(expected.sample)
        _compare(found, expected, scene.num_classes)


@every_door
@pytest.mark.parametrize(
    ("facts", "width"),
    [
        ({"dtype": torch.float32}, 5),
        ({"num_classes": 2}, 256),
        ({"num_classes": 100}, 7),
    ],
    ids=["float32 in batches of 5", "2 classes", "100 classes in batches of 7"],
)
def test_whatever_the_batches_the_precision_and_the_classes(door, facts, width, tmp_path):
    scene = Scene(**facts)
    asked = door.ask(Visit(scene, door.few, tmp_path, width))
    assert len(asked) == len(door.few)
    for found, name in zip(asked, door.few, strict=True):
        _compare(found, scene.found(Row(name)), scene.num_classes, scene.dtype)


class Turned(Scene):
    """The same images, the last one first."""

    @property
    def labels(self):
        return super().labels.flip(0)

    @property
    def pixels(self):
        return super().pixels.flip(0)


@every_door
def test_whatever_the_order_of_the_images(door, tmp_path):
    asked = door.ask(Visit(Turned(), door.still, tmp_path))
    for found, name in zip(asked, door.still, strict=True):
        straight = Scene().found(Row(name))
        if found.rows is None:
            told = None if found.correct is None else found.correct[::-1]
            _compare(type(found)(correct=told, hits=found.hits), straight, 4)
            continue
        same = select(straight, COUNT - 1 - found.rows.sample)
        assert len(found.rows.sample)
        assert found.rows.predicted.tolist() == same.predicted.tolist()
        assert found.rows.broken_by.tolist() == same.broken_by.tolist()


@pytest.mark.parametrize("door", [door for door in DOORS if door.black_boxes], ids=str)
def test_a_black_box_is_judged_as_its_model_or_refused(door, tmp_path):
    scene = Scene(dtype=torch.float32)
    model = scene.model.eval()

    def answers(images):
        return model(torch.from_numpy(images)).detach().numpy()

    def ask(*names):
        return door.ask(Visit(scene, names, tmp_path, answers=answers))

    with refused("needs gradients", "black box"):
        ask(door.few[0])
    name = "square(queries=8)" if len(door.takes) > 1 else "suite(square(queries=8))"
    (found,) = ask(name)
    _compare(found, scene.found(Row(name)), scene.num_classes, scene.dtype)


# One process, in which each door that keeps has a child that is killed at its third piece.
_KILLED = """
import json, os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from doors_in import KEEPING, SUITE, Visit
from conditions import Scene
from classwise.attacks.condition import Condition

judge, pieces = Condition.judge, []

def killed(self, subject, batch, *tell):
    if self.attack is not None:
        pieces.append(batch)
    if len(pieces) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return judge(self, subject, batch, *tell)

Condition.judge = killed
ends = []
for number, door in enumerate(KEEPING):
    child = os.fork()
    if child == 0:
        folder = Path(sys.argv[1]) / str(number)
        KEEPING[door].ask(Visit(Scene(), (SUITE,), folder, 2, kept=True))
        os._exit(0)
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(ends))
"""


def test_after_a_kill_a_door_that_keeps_goes_on_where_it_was(tmp_path, monkeypatch):
    """The command line is killed in tests/record/test_killed_and_at_once.py."""
    package = Path(classwise.__file__).parents[1]
    paths = os.pathsep.join([str(Path(conditions.__file__).parent), str(package)])
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == [-9] * len(KEEPING) == [-9, -9]
    shown, judge = [], Condition.judge

    def counted(self, subject, batch, *tell):
        shown.extend([len(batch)] if self.attack is not None else [])
        return judge(self, subject, batch, *tell)

    straight = Scene().found(Row(SUITE))
    monkeypatch.setattr(Condition, "judge", counted)
    for number, door in enumerate(KEEPING.values()):
        shown.clear()
        visit = Visit(Scene(), (SUITE,), tmp_path / str(number), 2, kept=True)
        (found,) = door.ask(visit)
        assert sum(shown) == COUNT - (2 + 4), "two pieces were kept"
        _compare(found, straight, 4)


def _compare(asked, expected, num_classes, dtype=torch.float64):
    if asked.rows is not None:
        assert len(asked.rows.sample)
        rounding = 1e-7 if dtype == torch.float64 else 1e-4  # with the company in a batch
        same_verdicts(asked.rows, select(expected, asked.rows.sample), rounding)
    elif asked.correct is not None:
        assert asked.correct.tolist() == expected.correct.tolist()
    else:
        assert asked.hits.tolist() == hits_of(expected, num_classes)


def test_every_attack_object_stands_in_the_table():
    kinds = {
        one for one in vars(objects).values()
        if isinstance(one, type) and issubclass(one, objects.Attack) and not one.__subclasses__()
    }  # fmt: skip
    scene = Scene()
    assert {type(make(scene.model, scene.eps)) for make in OBJECTS.values()} == kinds


def test_what_one_door_kept_another_does_not_judge_again(tmp_path, monkeypatch):
    """Our own objects, names and parsed conditions keep one identity in a ledger."""
    scene, judge, shown = Scene(), Condition.judge, []

    def counted(self, subject, batch, *tell):
        shown.append(len(batch))
        return judge(self, subject, batch, *tell)

    monkeypatch.setattr(Condition, "judge", counted)
    facts = {"class_names": scene.class_names, "eps": scene.eps, "out": tmp_path}
    name = "pgd-3(step=0.01)"
    ways = [
        name,
        [classwise.PGD(scene.model, scene.eps, 0.01, 3)],
        [scene.condition(Row(name))],
    ]
    reports = [
        classwise.audit(scene.model, scene.pixels, scene.labels, attacks=way, **facts)
        for way in ways
    ]
    assert sum(shown) == len(scene.labels)
    confusions = [report.confusion[name].tolist() for report in reports]
    assert confusions[0] == confusions[1] == confusions[2]


def test_files_name_no_code():
    assert set(ASKED) - set(NAMED) == {"conditions:Blur>pgd-3"}
