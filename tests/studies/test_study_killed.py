"""A study that is killed with SIGKILL in the middle goes on, loses nothing and ends the same."""

import os
import signal
import subprocess
import sys
import time

import pytest
from tiny_studies import Here, study, write_study

from classwise.training.run import Run

EPOCHS = 30  # long enough to be killed in the middle


def epochs_of(folder):
    return {
        path.parent.name: Run(path.parent).finished_epochs for path in folder.glob("*/run.json")
    }


def table(folder):
    return (folder / "three" / "table-1.csv").read_text()


@pytest.fixture
def undisturbed(tmp_path, monkeypatch):
    (tmp_path / "calm").mkdir()
    path = write_study(tmp_path / "calm", epochs=EPOCHS)
    words = (path, "--out", tmp_path / "calm", "--seeds", "1", "--only", "at*")
    assert study(*words, here=Here(), monkeypatch=monkeypatch).exit_code == 0
    monkeypatch.undo()
    return table(tmp_path / "calm")


def test_sigkill_with_two_workers_then_resume(tmp_path, monkeypatch, undisturbed):
    words = ["study", write_study(tmp_path, epochs=EPOCHS), "--seeds", "1"]
    words += ["--only", "at*", "--workers", "2", "--out", str(tmp_path / "runs")]
    command = [sys.executable, "-m", "classwise", *words, "--scale", "smoke", "--quiet"]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 240
        while process.poll() is None and time.monotonic() < end:
            done = epochs_of(tmp_path / "runs").values()
            if any(2 <= many < EPOCHS for many in done):
                break
            time.sleep(0.05)
        assert process.poll() is None, "it ended before it could be killed"
        os.kill(process.pid, signal.SIGKILL)  # its workers see that, and end by themselves
        process.wait()
        wait_for_silence(process.pid)
    finally:
        if process.poll() is None:
            process.kill()
    before = epochs_of(tmp_path / "runs")
    assert any(many < EPOCHS for many in before.values())
    kept = {name: lines(tmp_path / "runs" / name)[:many] for name, many in before.items()}
    resumed = study(*words[1:], here=Here(), monkeypatch=monkeypatch)
    assert resumed.exit_code == 0, resumed.output
    assert set(epochs_of(tmp_path / "runs").values()) == {EPOCHS}
    for name, some in kept.items():  # no epoch that was finished was trained again
        assert lines(tmp_path / "runs" / name)[: len(some)] == some
    assert table(tmp_path / "runs") == undisturbed


def lines(run):
    """Seconds that each epoch took: an epoch that is repeated takes others."""
    path = run / "times.jsonl"
    return path.read_text().splitlines()[:-1] if path.exists() else []


def wait_for_silence(group):
    """Wait until no process of the group is left."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError("a worker outlived the study by a minute")
