"""Laws that every door keeps; `conditions.DOORS` has one row for each."""

import pytest
import torch
from conditions import EPS, Row, Scene, same_verdicts
from doors_in import ASKED, DOORS, NAMED, OBJECTS

import classwise
from classwise.attacks.condition import Condition
from classwise.doors import attacks as objects
from classwise.record.rows import select


def hits_of(found):
    right = found.label[found.correct]
    return [int((right == k).sum()) for k in range(Scene().num_classes)]


@pytest.mark.usefixtures("untouched_random_state")
@pytest.mark.parametrize("norm", EPS)
@pytest.mark.parametrize("door", DOORS, ids=str)
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
        asked = door.ask(scene, door.takes, tmp_path)
        assert [part.training for part in model.modules()] == [True, True, False, True]
        assert all(w.grad is m for w, m in zip(model.parameters(), marks, strict=True))
        assert all(bool((mark == 3).all()) for mark in marks)
    finally:
        model.zero_grad()
        model.eval()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    for found, expected in zip(asked, straight, strict=True):
        _compare(found, expected)


def _compare(asked, expected):
    assert 0 < int(expected.correct.sum()) < len(expected.sample)
    if asked.rows is not None:
        assert len(asked.rows.sample)
        same_verdicts(asked.rows, select(expected, asked.rows.sample))
    elif asked.correct is not None:
        assert asked.correct.tolist() == expected.correct.tolist()
    else:
        assert asked.hits.tolist() == hits_of(expected)


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
