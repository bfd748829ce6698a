"""What a run will cost is said beforehand: network passes are counted here, never seconds."""

import gc
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import classwise
from classwise.cli import app
from classwise.errors import ClasswiseError
from classwise.memory import PeakMemory
from classwise.models.classifier import Classifier
from classwise.training.estimate import Estimate, Part

TINY = {"data": "digits", "model": "cnn(width=2)", "subset": 96, "batch_size": 16, "eps": 0.1}
TICK = 1e-6  # seconds that an image's pass takes by the clock of these tests


@pytest.fixture
def passes(monkeypatch):
    """Images that went through any network of the package so far."""
    seen = [0]
    plain = Classifier.forward

    def counted(self, images):
        seen[0] += len(images)
        return plain(self, images)

    monkeypatch.setattr(Classifier, "forward", counted)
    return seen


def real_and_estimated(passes, tmp_path, recipe, **more):
    options = {**TINY, "epochs": 3, "valid": "0.1", **more}
    found = classwise.estimate(recipe, **options, clock=lambda: TICK * passes[0])
    passes[0] = 0
    classwise.train(recipe, **options, out=tmp_path / "run", quiet=True)
    return TICK * passes[0], found


@pytest.mark.parametrize(
    ("recipe", "more"),
    [
        ("clean", {}),
        ("at(steps=3)", {}),
        ("trades(steps=2)+ema(start=0)", {"watch": "test:pgd-2,test:clean@ema"}),
        ("at(steps=4)", {"valid": "0"}),
    ],
)
def test_it_is_near_what_the_run_then_takes(passes, tmp_path, recipe, more):
    real, found = real_and_estimated(passes, tmp_path, recipe, **more)
    assert real / 1.5 <= found.seconds - found.parts[0].seconds <= real * 1.5


def test_an_attack_that_stops_early_is_estimated_as_one_that_does_not(passes, tmp_path):
    real, found = real_and_estimated(passes, tmp_path, "at(steps=4)+fat(patience=1)")
    assert found.stops
    assert "at most about" in str(found)
    assert real <= found.seconds * 1.5


def test_every_kind_of_work_has_its_part(passes):
    options = {**TINY, "epochs": 4, "valid": "0.1", "watch": "test:clean", "watch_every": 3}
    found = classwise.estimate("at(steps=1)+ema(start=0)", **options)
    times = {part.name: part.times for part in found.parts}
    # epochs × batches; live and averaged weights; after epochs 3 and 4; after every epoch
    assert times == {
        "start": 1,
        "steps": 4 * 6,
        "validation": 8,
        "watching": 2,
        "averages and files": 4,
    }
    assert found.seconds > 0
    assert passes[0]


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    classwise.estimate("clean", **TINY, epochs=1)
    assert list(tmp_path.iterdir()) == []


def test_the_model_and_the_draws_of_others_are_left_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    classwise.estimate("at(steps=1)", **TINY, epochs=1)
    assert torch.equal(before, torch.get_rng_state())


def test_what_train_does_not_know_is_not_known_here():
    with pytest.raises(ClasswiseError, match="training option"):
        classwise.estimate("at", out="runs/x")


def test_the_command_prints_it_and_writes_no_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["train", "clean", "--model", "cnn(width=2)", "--subset", "96", "--epochs", "2"]
    found = CliRunner().invoke(app, [*words, "--estimate"])
    assert found.exit_code == 0, found.output
    assert "clean on digits, 2 epochs of 1 batches: about" in found.output
    assert "steps" in found.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("idle", [["--resume"], ["--wait"], ["--quiet"], ["--out", "runs/x"]])
def test_options_that_would_be_idle_are_refused(idle):
    found = CliRunner().invoke(app, ["train", "clean", "--estimate", *idle])
    assert found.exit_code == 2
    assert f"leave {idle[0]} out" in " ".join(found.output.split())


def test_an_estimate_is_the_sum_of_its_parts():
    parts = (Part("start", 1, 2.0), Part("steps", 600, 0.5), Part("files", 3, 0.1))
    whole = Estimate("at on digits", parts, 310_000_000)
    assert whole.seconds == pytest.approx(302.3)
    assert str(whole).splitlines() == [
        "at on digits: about 5 min, peak memory 310 MB",
        "  start                     2 s",
        "  steps                   5 min  600 × 0.5 s",
        "  files                   0.3 s  3 × 0.1 s",
    ]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells")
def test_peak_memory_is_that_since_it_was_asked_for():
    big = torch.ones(40 << 20, dtype=torch.uint8)
    del big
    gc.collect()
    peak = PeakMemory(torch.device("cpu"))
    before = peak.bytes()
    big = torch.ones(200 << 20, dtype=torch.uint8)
    del big
    assert 150 << 20 < peak.bytes() - before < 300 << 20
