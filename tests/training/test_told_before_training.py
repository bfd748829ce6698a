"""Mistakes that are told before training starts, and before the run folder is touched."""

from pathlib import Path

import pytest
from refusals import refused
from typer.testing import CliRunner

from classwise.cli import app
from classwise.training.loop import train
from classwise.training.run import Run

QUICK = ["--eps", "0.2", "--epochs", "1", "--valid", "0.1", "--subset", "60", "--quiet"]
QUICK += ["--model", "cnn(width=2)"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*words):
    return CliRunner().invoke(app, ["train", "at(steps=1)", *QUICK, "--out", "run", *words])


def told(*words):
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    return result.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--subset", "9"], ("subset=9", "10 classes", "10 or more")),
        (["--subset", "1"], ("subset=1",)),
        (["--epochs", "0"], ("epochs=0", "greater than or equal to 1")),
        (["--resume"], ("run holds no run", "leave out --resume")),
    ],
    ids=str,
)
def test_what_cannot_train_leaves_no_folder(words, says):
    found = told(*words)
    assert all(word in found for word in says), found
    assert not Path("run").exists()
    assert run().exit_code == 0  # and nothing is in the way of the right words


def test_a_subset_of_one_image_per_class_trains(tiny):
    assert run("--subset", "10").exit_code == 0
    few = tiny(classes=3, missing=(1,))  # two classes have images, so two images will do
    options = {"epochs": 1, "model": "cnn(width=2)", "eps": 0.1}
    train("clean", out="two", source=few, subset=2, quiet=True, **options)
    with refused("subset=1", "2 classes"):
        train("clean", out="one", source=few, subset=1, quiet=True, **options)


def test_a_file_is_no_folder(tiny):
    Path("run").write_text("a thesis")
    assert "run is a file; choose another folder" in told()
    assert "run is a file; choose another folder" in told("--out", "run/inside")
    assert "holds no run" in told("--resume")
    with refused("run is a file"):
        train("clean", out="run", source=tiny(), epochs=1, quiet=True)
    assert Path("run").read_text() == "a thesis"


def test_a_folder_without_a_run_is_not_resumed():
    Path("run").mkdir()
    assert "holds no run" in told("--resume")
    Path("run/notes.txt").write_text("mine")
    assert "holds no run" in told("--resume")
    assert [file.name for file in Path("run").iterdir()] == ["notes.txt"]


def test_a_finished_run_says_so_and_is_no_mistake():
    assert run().exit_code == 0
    before = {file: file.read_bytes() for file in Path("run").rglob("*") if file.is_file()}
    again = run("--resume")
    assert again.exit_code == 0, again.output
    assert "Finished already, all 1 epochs of at: run" in again.output
    assert before == {file: file.read_bytes() for file in before}
    assert "already holds 1 epochs" in told()


def test_in_python_resume_goes_on_if_there_is_something(tiny):
    options = {"epochs": 1, "model": "cnn(width=2)", "eps": 0.1, "source": tiny(), "quiet": True}
    assert train("clean", out="run", resume=True, **options).finished_epochs == 1
    assert train("clean", out="run", resume=True, **options).finished_epochs == 1
    assert Run(Path("run")).begun
    assert not Run(Path("elsewhere")).begun
