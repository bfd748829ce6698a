"""Studies on a Ray of this machine: the same pages as by processes, also if a worker dies."""

import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from refusals import refused

from classwise.errors import ClasswiseError
from classwise.locks import Holder
from classwise.studies.at_url import Home
from classwise.studies.finding import Reader
from classwise.studies.grid import Processes
from classwise.studies.making import plan_studies, work_of, write_page
from classwise.studies.on_ray import MISSING, OnRay
from classwise.studies.runs_folder import RunsFolder

STUDY = """
title = "Two recipes"
[[runs]]
recipe = ["at", "trades"]
data = "cifar10"
seeds = 2
[audit]
attacks = ["clean", "pgd-20"]
[[artefact]]
kind = "table"
title = "Both"
measures = ["average", "worst"]
conditions = ["clean", "pgd-20"]
[scale.smoke]
seeds = 2
settings.epochs = 40
"""


def begin(executor, jobs, done):
    """Run the jobs; on a crowded machine Ray's own processes may come up too late, even twice."""
    for last in (False, False, True):
        try:
            return executor.run(jobs, done)
        except ClasswiseError as reason:
            if last or "did not begin" not in str(reason):
                raise


def made_by(executor, path, home, beside=None, url=""):
    """Train and audit the study's runs, and return its page."""
    (planned,) = plan_studies([str(path)], "smoke")
    work, failed = work_of([planned], RunsFolder.of(home)).on("cpu", url), {}
    if beside is not None:
        beside.start()
    begin(executor, list(work.jobs.values()), lambda job, why: failed.setdefault(job.path, why))
    if beside is not None:
        beside.join()
    assert not any(failed.values()), failed
    assert len(failed) == 4
    whole = Home.of(url or home)
    page, _ = write_page(planned, Reader(RunsFolder.of(whole.folder)), path.parent / "pages")
    return page.read_text()


def kill_one(home, killed, runs="*"):
    """Kill the process that trains some run, after its third epoch."""
    end = time.monotonic() + 240
    while time.monotonic() < end:
        for history in home.glob(f"{runs}/history.jsonl"):
            lines = history.read_text().count("\n")
            lock = history.parent / ".writer.lock"
            if 3 <= lines < 38 and lock.exists():
                holder = Holder.read(lock)
                if holder is not None:
                    os.kill(holder.pid, signal.SIGKILL)
                    killed.append(holder.pid)
                    return
        time.sleep(0.01)


def test_a_killed_worker_costs_nothing(tmp_path):
    """One of two workers of a local Ray is killed in the middle of a run."""
    pytest.importorskip("ray")
    study = tmp_path / "both.toml"
    study.write_text(STUDY)
    killed = []
    killer = threading.Thread(target=kill_one, args=(tmp_path / "ray", killed))
    printing = print
    on_ray = made_by(OnRay("", 2), study, tmp_path / "ray", killer)
    assert print is printing
    assert killed, "nobody was killed"
    assert on_ray == made_by(Processes(2), study, tmp_path / "local")


def test_a_killed_worker_costs_nothing_where_runs_are_kept_at_a_url(tmp_path, monkeypatch):
    """Workers share no folder: what one had in its own is lost with it, but for the URL."""
    pytest.importorskip("ray")
    study, killed = tmp_path / "both.toml", []
    study.write_text(STUDY)
    with tempfile.TemporaryDirectory(prefix="r") as scratch:  # Ray's sockets want a short path
        monkeypatch.setenv("TMPDIR", scratch)
        monkeypatch.setattr(tempfile, "tempdir", None)  # look again
        words = (Path(scratch), killed, "classwise-*/*")
        killer = threading.Thread(target=kill_one, args=words)
        there = f"file://{tmp_path / 'there'}"
        on_ray = made_by(OnRay("", 2), study, tmp_path / "mirror", killer, there)
        assert killed, "nobody was killed"
    assert not (tmp_path / "mirror").exists()
    assert on_ray == made_by(Processes(2), study, tmp_path / "local")


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with refused(MISSING):
        OnRay("", 1).run([], lambda *_: None)
