"""Jobs in processes: one that fails, or dies, leaves the others alone."""

import os
import signal
from pathlib import Path

import pytest
from rich.console import Console

from classwise.errors import ClasswiseError
from classwise.studies import grid
from classwise.studies.grid import AuditJob, Job, Processes, attempt, run_grid, run_jobs
from classwise.training.config import TrainConfig
from classwise.training.run import Run

QUICK = TrainConfig(
    data="madeup(digits, size=4)", model="cnn(width=1)", epochs=2, valid="0.2", eps=0.1,
    valid_attack="pgd-1",
)  # fmt: skip


def job(folder, recipe="at(steps=1)", name="run", **how):
    return Job(recipe, QUICK, (AuditJob("clean,pgd-2", ("last",)),), folder / name, **how)


def test_a_job_is_trained_and_audited_once(tmp_path):
    assert attempt(job(tmp_path)) == ""
    run = Run(tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*.*")}
    assert run.finished_epochs == 2
    assert attempt(job(tmp_path)) == ""
    after = {path: path.stat().st_mtime_ns for path in run.path.rglob("*.*")}
    changed = {path.name for path in after if after[path] != before.get(path)}
    assert not {name for name in changed if name.endswith((".jsonl", ".parquet", ".safetensors"))}


def test_a_job_is_trained_on_its_device(tmp_path):
    assert "mars" in attempt(job(tmp_path, device="mars"))


def test_why_a_job_failed_is_said_in_words(tmp_path, monkeypatch):
    assert "unknown method 'ta'" in attempt(job(tmp_path, "ta"))
    assert "add --import os" in attempt(job(tmp_path, "at+os:Boost"))

    def broken(_):
        raise MemoryError

    monkeypatch.setattr(grid, "run_job", broken)
    assert attempt(job(tmp_path)).startswith("MemoryError")


class Here:
    """An executor in this very process."""

    def run(self, jobs, done):
        for one in jobs:
            done(one, attempt(one))


def test_failures_are_returned_and_the_others_go_on(tmp_path):
    jobs = [job(tmp_path, name="a"), job(tmp_path, "ta", "b"), job(tmp_path, name="c")]
    seen = []
    failed = run_jobs(
        jobs, Here(), console=Console(quiet=True), done=lambda one, why: seen.append((one, why))
    )
    assert list(failed) == [tmp_path / "b"]
    assert [one.path.name for one, _ in seen] == ["a", "b", "c"]
    assert Run(tmp_path / "c").finished_epochs == 2


def test_a_grid_says_how_many_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "Processes", lambda _: Here())
    with pytest.raises(ClasswiseError, match="1 of 1 runs failed; first: b: unknown method"):
        run_grid([job(tmp_path, "ta", "b")], workers=1, console=Console(quiet=True))


def die_once(one: Job) -> str:
    """Stands for a job: its process is killed the first time, or every time."""
    mark = Path(f"{one.path}.tried")
    tried = mark.exists()
    mark.write_text("")
    if one.path.name == "always" or (one.path.name == "once" and not tried):
        os.kill(os.getpid(), signal.SIGKILL)
    return ""


def test_a_process_that_dies_is_replaced_and_its_job_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "attempt", die_once)
    ended = {}
    jobs = [job(tmp_path, name=name) for name in ("once", "always")]
    Processes(1).run(jobs, lambda one, why: ended.update({one.path.name: why}))
    assert ended["once"] == ""
    assert "its process died 2 times" in ended["always"]


def test_an_error_of_whoever_listens_ends_all_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "attempt", die_once)

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Processes(1).run([job(tmp_path, name="well"), job(tmp_path, name="also")], stop)
