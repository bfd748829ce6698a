"""Names in a stranger's file are shown, whatever they hold; none speaks to the terminal."""

import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from short_runs import short_run
from torch import nn
from typer.testing import CliRunner

import classwise
from classwise.auditing.flags import Flag
from classwise.cli import app
from classwise.doors import pointed_at, targets
from classwise.doors.autoattack import AutoAttack
from classwise.record.tensors import read_tensors, write_tensors
from classwise.sealed import sealed_text

HOSTILE = "at\x1b[2J\x9b[/bold][link=http://x]"
SHOWN = r"at\x1b[2J\x9b[/bold][link=http://x]"


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny):
    """A run, and a file of its weights, that call their recipe so."""
    folder = tmp_path_factory.mktemp("theirs")
    run = short_run(folder / "run", "clean", tiny(), epochs=1)
    tensors, about = read_tensors(run.weights_path("last"))
    write_tensors(folder / "file.safetensors", tensors, {**about, "recipe": HOSTILE})
    card = json.loads((run.path / "run.json").read_text()) | {"recipe_name": HOSTILE}
    card.pop("checksum")
    (run.path / "run.json").write_bytes(sealed_text(card))
    return folder


@pytest.fixture
def audit(made, monkeypatch):
    """Audit one of them, where something odd is seen at the first look."""
    monkeypatch.setattr(targets, "first_look", lambda *_: [Flag("odd", "something is odd")])

    def audit(what):
        words = [str(made / what), "--data", "digits", "--attacks", "clean", "--limit", "20"]
        told = CliRunner().invoke(app, ["audit", *words])
        assert told.exit_code == 0, told.output
        assert not {"\x1b", "\x9b"} & set(told.output)
        return " ".join(told.stderr.split())

    return audit


@pytest.mark.parametrize("what", ["run", "file.safetensors"])
def test_what_is_odd_is_told_under_the_name_of_their_recipe(audit, what):
    assert f"{SHOWN} last: odd: something is odd" in audit(what)


def test_what_was_done_to_make_a_file_fit(audit, monkeypatch):
    real = pointed_at.open_model
    monkeypatch.setattr(
        pointed_at, "open_model", lambda *words: replace(real(*words), words=f"without {HOSTILE}")
    )
    assert f"without {SHOWN}" in audit("file.safetensors")


def test_a_folder_with_brackets_in_its_name(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = str(made / "file.safetensors")
    words = ["audit", file, "--data", "digits", "--attacks", "clean", "--limit", "20", "--quiet"]
    told = CliRunner().invoke(app, [*words, "--out", "kept[/bold] [red]"])
    assert told.exit_code == 0, told.output
    assert "classwise report" in told.stdout
    assert "kept[/bold] [red]" in " ".join(told.stdout.split())


def test_lines_of_an_evaluation(capsys, tmp_path):
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    one = AutoAttack(net, eps=0.1, version="custom", attacks_to_run=["apgd-ce"],
                     log_path=tmp_path / "log")  # fmt: skip
    images, labels = torch.rand(4, 1, 2, 2), torch.tensor([0, 1, 0, 1])
    one.run_standard_evaluation(images, labels, state_path=tmp_path / "\x1b[2J")
    assert "taken from" in (said := capsys.readouterr().out)
    assert r"\x1b[2J" in said
    assert "\x1b" not in said + (tmp_path / "log").read_text()


def test_nothing_else_prints_past_the_terminal_that_makes_texts_harmless():
    home = Path(classwise.__file__).parent
    printing = {
        path.relative_to(home).as_posix()
        for path in home.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    }
    # errors and lines that were defused before; and one process speaking to another
    assert printing == {"cli/app.py", "doors/autoattack.py", "data/decoding.py"}
