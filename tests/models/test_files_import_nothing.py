"""A stranger's file may name our architectures and no more: nothing is imported or allocated."""

import json
import sys

import pytest
import torch
from asked import audit_target
from refusals import refused
from typer.testing import CliRunner

from classwise.cli import app
from classwise.limits import LARGEST_OPTION, MOST_CLASSES
from classwise.models import build_model
from classwise.models.card import read_card
from classwise.record.run_folder import load_model
from classwise.record.tensors import read_tensors, write_tensors
from classwise.training.loop import train
from classwise.training.run import Run

QUICK = {"eps": 0.1, "epochs": 1, "batch_size": 16, "valid": "0.2", "model": "cnn(width=2)"}
NETWORK = {
    "spec": "cnn(width=2)",
    "num_classes": 10,
    "channels": 1,
    "mean": [0.3],
    "deviation": [0.4],
}


@pytest.fixture
def bomb(tmp_path, monkeypatch):
    """A module that leaves a mark when it is imported, and a spec that would import it."""
    mark = tmp_path / "boom"
    (tmp_path / "bomb_module.py").write_text(
        f"import pathlib\npathlib.Path({str(mark)!r}).mkdir()\n"
        "def make(**options):\n    raise SystemExit('called')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "bomb_module", raising=False)
    return mark


SPECS = [
    "bomb_module:make",
    "bomb_module:make(width=2)",
    "os:system(command='mkdir boom')",
    " bomb_module:make",
    "bomb_module:make (x=1)",
]


def weights_file(path, spec, **changes):
    tensors = build_model(**NETWORK).state_dict()
    about = {
        "network": {**NETWORK, "spec": spec, **changes},
        "data": {"class_names": [str(k) for k in range(10)]},
        "recipe": "at",
        "weights": "last",
    }
    write_tensors(path, tensors, about)
    return path


@pytest.mark.parametrize("spec", SPECS)
def test_a_header_cannot_name_code(bomb, tmp_path, spec):
    path = weights_file(tmp_path / "evil.safetensors", spec)
    with refused("evil.safetensors", "may not import", "--model"):
        load_model(path)
    with refused("evil.safetensors"):
        audit_target(str(path), data="digits", quiet=True)
    assert not bomb.exists()
    assert "bomb_module" not in sys.modules


@pytest.mark.parametrize("spec", SPECS)
def test_a_run_folder_cannot_name_code(bomb, tmp_path, tiny, spec):
    run = train("clean", out=tmp_path / "run", source=tiny(), quiet=True, **QUICK)
    path = run.weights_path("last")
    tensors, about = read_tensors(path)
    about["network"]["spec"] = spec
    write_tensors(path, tensors, about)
    card = json.loads((run.path / "run.json").read_text())
    del card["checksum"]  # changed by hand
    card["network"]["spec"] = card["config"]["model"] = spec
    (run.path / "run.json").write_text(json.dumps(card))
    with refused("last.safetensors"):
        Run(run.path).model()
    told = CliRunner().invoke(app, ["audit", str(run.path), "--data", "digits", "--quiet"])
    assert told.exit_code == 2
    assert not bomb.exists()


def test_begin_and_teacher_cannot_name_code(bomb, tmp_path, tiny):
    path = weights_file(tmp_path / "evil.safetensors", SPECS[0])
    with refused("evil.safetensors"):
        train(f"absld(teacher='{path}')", out=tmp_path / "a", source=tiny(), quiet=True, **QUICK)
    # of a file to begin from only the tensors are taken: what it says of its model is not built
    train(f"trades+frl(begin='{path}')", out=tmp_path / "b", source=tiny(), quiet=True, **QUICK)
    assert not bomb.exists()
    assert not (tmp_path / "a").exists()


OWN = """
from torch import nn
def make(num_classes, width=3):
    hidden = nn.Linear(64, width)
    return nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), nn.Linear(width, num_classes))
"""


def test_a_run_of_an_own_model_is_opened_by_naming_it_again(tmp_path, monkeypatch, tiny):
    (tmp_path / "nets_of_mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    own = {**QUICK, "model": "nets_of_mine:make"}
    run = train("clean", out=tmp_path / "run", source=tiny(), quiet=True, **own)
    with refused("nets_of_mine:make", "name it yourself"):
        Run(run.path).model()
    found = Run(run.path).model(spec="nets_of_mine:make")(torch.rand(2, 1, 8, 8))
    assert found.shape == (2, 10)
    with refused("does not fit"):
        Run(run.path).model(spec="nets_of_mine:make(width=5)")
    teacher = f"absld(teacher='{run.weights_path('last')}')"
    with refused("name it yourself"):
        train(teacher, out=tmp_path / "t", source=tiny(), quiet=True, **QUICK)
    named = {**QUICK, "teacher_model": "nets_of_mine:make"}
    assert train(teacher, out=tmp_path / "t", source=tiny(), quiet=True, **named).finished_epochs
    with refused("teacher_model", "no teacher"):
        train("at", out=tmp_path / "n", source=tiny(), quiet=True, **named)
    text = ["audit", str(run.path), "--data", "digits", "--attacks", "clean", "--quiet"]
    assert CliRunner().invoke(app, text).exit_code == 2
    done = CliRunner().invoke(app, [*text, "--model", "nets_of_mine:make"])
    assert done.exit_code == 0, done.output


def test_another_model_than_the_files_is_refused(tmp_path):
    path = weights_file(tmp_path / "w.safetensors", "cnn(width=2)")
    with refused("cnn(width=2)", "resnet9"):
        load_model(path, "resnet9")
    assert load_model(path, "cnn(width=2)")
    with refused("--model resnet9", "mine:net"):
        audit_target("mine:net", network="resnet9", data="digits", quiet=True)


@pytest.mark.parametrize(
    "spec",
    [
        "cnn(width=1000000000)",
        f"wrn(depth={6 * LARGEST_OPTION + 4})",
        "cnn(width=2.5)",
        "cnn(width=true)",
        "cnn(width='2')",
        "cnn(width=-1)",
        "cnn(width=" + "-" * 5000 + "1)",
        "cnn(height=2)",
        "cnn(2)",
        "no-such-net",
        "",
    ],
)
def test_options_of_a_file_are_small_whole_numbers(tmp_path, spec):
    with refused():
        load_model(weights_file(tmp_path / "odd.safetensors", spec))


def test_a_description_allocates_no_more_than_its_tensors(tmp_path):
    # so wide and as many classes as may be: gigabytes, if anybody believed it
    for spec, words in (("cnn(width=4096)", "10099982336 weights"), ("cnn(width=512)", "not fit")):
        path = weights_file(tmp_path / "huge.safetensors", spec, num_classes=MOST_CLASSES)
        with refused("huge.safetensors", words):
            load_model(path)
    path = weights_file(tmp_path / "huge.safetensors", "cnn(width=4096)", num_classes=10**8)
    with refused("huge.safetensors", "num_classes", str(MOST_CLASSES)):
        load_model(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_classes": 0},
        {"num_classes": "10"},
        {"num_classes": True},
        {"channels": 2},
        {"mean": [float("nan")]},
        {"deviation": [0.0]},
        {"extra": -1},
        {"head": "os:system"},
        {"seed": 3},
        {"spec": None},
    ],
)
def test_every_field_of_a_description_is_checked(changes):
    with refused("a.safetensors", "network of ours"):
        read_card({**NETWORK, **changes}, "a.safetensors")
    with refused("a.safetensors"):
        read_card([1, 2], "a.safetensors")
