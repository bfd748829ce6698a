"""`classwise tune` from the outside: killed and gone on with, its printed command, its refusals."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tuning_scenes import as_options, small_search
from typer.testing import CliRunner

import classwise
from classwise.cli import app
from classwise.data.sources import open_data
from classwise.errors import ClasswiseError
from classwise.training.identity import identity_of
from classwise.tuning import search as searching
from classwise.tuning.judged import Pair
from classwise.tuning.trial import Outcome


def tune(*words):
    return CliRunner().invoke(app, ["tune", *words], env={"COLUMNS": "1000"})


def finished_runs(folder: Path) -> dict[Path, int]:
    """When every run with all its three epochs ended; a line here follows the checkpoint."""
    found = folder.glob("runs/*/times.jsonl")
    return {p: p.stat().st_mtime_ns for p in found if p.read_text().count("\n") == 3}


def workers_of(session: int) -> list[str]:
    """Processes of a session that are still there; the number stands behind the name."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            after = stat.read_text().rpartition(")")[2].split()
            found += [stat.parent.name] if after[3] == str(session) and after[0] != "Z" else []
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see processes")
def test_killed_with_two_workers_and_gone_on_with(tmp_path):
    out = tmp_path / "a"
    words = [*as_options(), "--out", str(out), "--quiet"]
    source = str(Path(classwise.__file__).parent.parent)
    search = subprocess.Popen(
        [sys.executable, "-m", "classwise", "tune", *words, "--trials", "40", "--workers", "2"],
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        until = time.monotonic() + 240
        while len(finished_runs(out)) < 2:
            assert time.monotonic() < until
            assert search.poll() is None, "it ended by itself"
            time.sleep(0.05)
        search.kill()
        search.wait()
        while workers_of(search.pid):  # they end with the search
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        search.kill()
        search.wait()
    done = finished_runs(out)
    began = len(list((out / "runs").iterdir()))
    found = tune(*words, "--trials", str(began))
    assert found.exit_code == 0, found.output
    told = re.search(r"(\d+) trials: ", found.output)  # one may have begun without a folder
    assert told is not None, found.output
    assert began <= int(told[1]) <= began + 2
    assert "failed" not in found.output, found.output
    assert "broken off" not in found.output
    assert done.items() <= finished_runs(out).items()  # none was trained again


def test_the_printed_command_trains_the_same_run(tmp_path, monkeypatch):
    def run(job):
        recipe, config = job.start.made(job.values)
        identity = identity_of(recipe, config, open_data("digits"))
        return Outcome(job.number, identity, Pair(0.5, 0.1 * job.number), "live")

    monkeypatch.setattr(searching, "run_trial", run)
    found = tune(*as_options(), "--trials", "3", "--out", str(tmp_path / "a b"))
    assert found.exit_code == 0, found.output
    assert "Best compromise, by average + worst class: trial 2 with 50.0 and 20.0." in found.output
    (line,) = [line for line in found.output.splitlines() if line.startswith("Train it: ")]
    words = shlex.split(line.removeprefix("Train it: "))
    assert words[:2] == ["classwise", "train"]
    seen = {}

    def instead(recipe, config, **_):
        seen["identity"] = identity_of(recipe, config, open_data("digits"))
        raise ClasswiseError("seen")

    monkeypatch.setattr("classwise.training.loop.train", instead)
    CliRunner().invoke(app, words[1:])
    best = searching.Trials(tmp_path / "a b", small_search().varied, 0).all[2]
    assert seen["identity"] == best.about["identity"]
    assert (tmp_path / "a b" / "pareto.html").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["at", "--search", "at.stps=1..3"], "did you mean 'steps'"),
        (["at", "--search", "lr=0.4..0.1"], "the lower end comes first"),
        (["att"], "did you mean"),
        (["clean"], "trains without an attack"),
        (["at", "--data", "digts"], "did you mean 'digits'"),
        (["at", "--set", "lrr=1"], "did you mean 'lr'"),
        (["at", "--valid", "0"], "no validation image"),
    ],
)
def test_refusals_are_one_line_before_anything_is_written(words, said, tmp_path):
    found = tune(*words, "--out", str(tmp_path / "a"), "--quiet")
    assert found.exit_code == 2
    assert said in found.output
    assert not (tmp_path / "a").exists()


def test_without_optuna_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    found = tune("at")
    assert found.exit_code == 2
    assert "pip install 'classwise[tune]'" in found.output


def test_two_searches_in_one_folder_are_refused(tmp_path):
    from classwise.locks import FolderLock

    with FolderLock(tmp_path, "tuning"):
        found = tune(*as_options(), "--out", str(tmp_path), "--quiet")
    assert found.exit_code == 2
    assert "is in use by" in found.output
