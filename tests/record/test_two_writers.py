"""Two processes and one folder, and what a process sees that cannot write."""

import json
import signal
import time
from pathlib import Path

import forked
import pytest
from typer.testing import CliRunner

from classwise import cli
from classwise.judging.audits import read_ledger
from classwise.training.run import Run

NET = """
import time
import torch
from torch import nn

class Slow(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))

    def forward(self, x):
        time.sleep(0.02)
        return self.net(x)
"""
FULL = """
import resource, sys
import classwise.cli as cli
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
sys.argv[1:] = sys.argv[2:]
cli.main()
"""
FETCH = """
import sys, time
from pathlib import Path
from classwise.data import download

def slowly(folder, quiet):
    time.sleep(1)
    made = folder / "there"
    made.mkdir()  # a second one would fail
    return made

download._ways = lambda name: [("nowhere", slowly)]
download.locate = lambda name, folders: next((f / "there" for f in folders if (f / "there").exists()), None)
download.check = lambda name, place: None
print(download.get("cifar10", where=Path(sys.argv[1]), quiet=True))
"""  # noqa: E501
STARTED = []
TRAIN = ["train", "clean", "--model", "cnn(width=2)", "--subset", "50", "--valid", "0.1"]
TRAIN += ["--set", "valid_attack=pgd-1", "--quiet"]


@pytest.fixture
def here(tmp_path):
    (tmp_path / "slow_net.py").write_text(NET)
    yield tmp_path
    while STARTED:  # nothing outlives a test that failed
        STARTED.pop().kill()


def start(here, *words, code=forked.COMMAND):
    STARTED.append(forked.start(*words, code=code, cwd=here))
    return STARTED[-1]


def end(process):
    code, said, wrong = process.end()
    assert "Traceback" not in wrong, wrong
    return code, said, wrong


def until(ready):
    deadline = time.monotonic() + 300
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_second_training_is_told_who_trains_there_or_waits(here):
    words, run = [*TRAIN, "--epochs", "9000", "--out", "run"], Run(here / "run")
    first = start(here, *words)
    until((here / "run" / "history.jsonl").exists)
    waiting = start(here, *words, "--resume", "--wait")
    code, _, wrong = end(start(here, *words, "--resume"))
    assert code == 2
    (line,) = wrong.strip().splitlines()
    for part in ("run is in use by process", str(first.pid), "training since", "(--wait)"):
        assert part in line
    assert waiting.poll() is None
    first.send_signal(signal.SIGTERM)
    assert end(first)[0] == 143
    done = run.finished_epochs
    until(lambda: run.finished_epochs > done)
    waiting.send_signal(signal.SIGTERM)
    assert end(waiting)[0] == 143
    epochs = [record["epoch"] for record in run.history]
    assert epochs == list(range(1, len(epochs) + 1))
    assert not (here / "run" / ".writer.lock").exists()


@pytest.mark.parametrize(("which", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_the_lock_of_a_training_that_was_stopped_is_no_obstacle(here, which, code):
    words = [*TRAIN, "--out", "run"]
    first = start(here, *words, "--epochs", "300")
    until((here / "run" / "history.jsonl").exists)
    first.send_signal(which)
    assert end(first)[0] == code
    assert (here / "run" / ".writer.lock").exists() == (which == signal.SIGKILL)
    other = start(here, *words, "--epochs", "300", "--resume")
    done = Run(here / "run").finished_epochs
    until(lambda: Run(here / "run").finished_epochs > done)
    other.send_signal(signal.SIGTERM)
    assert end(other)[0] == 143


def test_two_audits_at_once_both_finish_and_every_row_is_there_once(here):
    words = ["audit", "slow_net:Slow", "--data", "digits", "--attacks", "clean,pgd-3", "--eps"]
    words += ["0.1", "--limit", "90", "--batch-size", "10", "--out", "kept", "--quiet"]
    both = [start(here, *words) for _ in range(2)]
    assert [end(one)[0] for one in both] == [0, 0]
    (one,) = read_ledger(here / "kept")
    assert [int(one.report[name].counts.sizes.sum()) for name in one.report] == [90, 90]
    assert len(list((here / "kept" / "predictions").glob("*.parquet"))) == 2
    assert not list((here / "kept").glob("*.lock"))


def test_two_downloads_at_once_fetch_once(here):
    both = [start(here, str(here / "data"), code=FETCH) for _ in range(2)]
    found = [end(one) for one in both]
    assert [code for code, *_ in found] == [0, 0], found
    assert {said.strip() for _, said, _ in found} == {str(here / "data" / "there")}


@pytest.mark.parametrize("room", [100, 3_000, 60_000, 400_000])
def test_a_full_disk_is_one_line_and_the_run_goes_on_later(here, room):
    words = [*TRAIN, "--epochs", "12", "--out", "run"]
    code, _, wrong = end(start(here, str(room), *words, code=FULL))
    if code:  # there was not enough room
        assert code == 2
        (line,) = [one for one in wrong.splitlines() if one.startswith("classwise: ")]
        assert line.startswith("classwise: cannot write ")
    begun = (here / "run" / "run.json").exists()
    assert end(start(here, *words, *["--resume"] * begun))[0] == 0
    assert [record["epoch"] for record in Run(here / "run").history] == list(range(1, 13))


@pytest.mark.parametrize("out", ["shut", "shut/run"])
@pytest.mark.parametrize("command", ["train", "audit"])
def test_a_folder_that_may_not_be_written_is_one_line(here, monkeypatch, command, out):
    """Root may write everywhere, so the system's refusal is played."""
    shut = here / "shut"
    shut.mkdir()

    def refusing(real, writes):
        def called(self, *args, **options):
            if shut in (self, *self.parents) and self != shut and writes(*args):
                raise PermissionError(13, "Permission denied", str(self))
            return real(self, *args, **options)

        return called

    monkeypatch.setattr(Path, "mkdir", refusing(Path.mkdir, lambda *_: True))
    writes = lambda mode="r", *_: bool(set(mode) & set("wax+"))  # noqa: E731
    monkeypatch.setattr(Path, "open", refusing(Path.open, writes))
    monkeypatch.syspath_prepend(here)
    words = {
        "train": [*TRAIN, "--epochs", "1"],
        "audit": ["audit", "slow_net:Slow", "--data", "digits", "--limit", "20", "--quiet"],
    }[command]
    result = CliRunner().invoke(cli.app, [*words, "--out", str(here / out)])
    assert result.exit_code == 2, result.exception
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("classwise: cannot write ")
    assert "Permission denied" in line
    assert list(shut.iterdir()) == []


def test_what_a_lock_says_can_be_read(here):
    process = start(here, *TRAIN, "--epochs", "300", "--out", "run")
    lock = here / "run" / ".writer.lock"
    until(lock.exists)
    said = json.loads(lock.read_text())
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == 143
    assert (said["pid"], said["doing"]) == (process.pid, "training")
