"""Lists stay short, runs are named once, and each door speaks its own language."""

import pytest
import torch
from refusals import refused
from torch import nn
from typer.testing import CliRunner

import classwise
from classwise.cli import app

X, Y = torch.rand(40, 1, 2, 2, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2


def test_a_run_named_twice_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    classwise.audit(model, X, Y, attacks="clean", out="a")
    for again in ("a", "./a", str(tmp_path / "a")):
        with refused("a is named twice"):
            classwise.report(["a", again], "report.md")
    classwise.report(["a"], "report.md")


def test_thousands_of_classes_make_no_long_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    many, names = 300, [f"a class with the number {k}" for k in range(300)]
    labels = torch.arange(many).repeat_interleave(20)
    right = nn.functional.one_hot(labels, many).float()[:, None, None]
    model = nn.Sequential(nn.Flatten(), nn.Linear(many, many, bias=False))
    for name, sign in (("a", 1.0), ("b", -1.0)):
        nn.init.eye_(model[1].weight)
        model[1].weight.data.mul_(sign)
        facts = {"attacks": "clean", "class_names": names, "out": name, "name": name}
        assert len(str(classwise.audit(model, right, labels, **facts))) < 1000
    (found,) = classwise.diff("a", "b")
    assert len(found.worse) == many
    assert len(str(found)) < 1000
    assert "and 290 more" in str(found)


def test_python_speaks_of_resume_as_python_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"data": "digits", "eps": 0.1, "epochs": 1, "subset": 100, "quiet": True}
    classwise.train("clean", out="a", **options)
    with pytest.raises(classwise.ClasswiseError) as caught:
        classwise.train("clean", out="a", **options)
    assert "resume=True" in str(caught.value)
    assert "--" not in str(caught.value)
    words = ["train", "clean", "--eps", "0.1", "--epochs", "1", "--subset", "100", "--out", "a"]
    said = CliRunner().invoke(app, words).stderr
    assert "add --resume to go on" in said
