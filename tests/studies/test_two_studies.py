"""Two studies at once: pages and records are written by one after the other."""

import shutil
import threading

import pytest
from short_runs import short_run
from tiny_studies import write_study

from classwise import locks
from classwise.studies import making, records
from classwise.studies.finding import Reader
from classwise.studies.making import plan_studies, write_page
from classwise.studies.records import keep_record
from classwise.studies.runs_folder import RunsFolder


@pytest.fixture
def meanwhile(monkeypatch):
    """Begin the same once more, in a thread, before the first call of a function."""
    monkeypatch.setattr(locks, "PATIENCE", 0.01)
    threads, failed = [], []

    def begin(do, module, name):
        real = getattr(module, name)

        def again():
            try:
                do()
            except BaseException as reason:
                failed.append(reason)

        def calling(*words, **options):
            if not threads:
                threads.append(threading.Thread(target=again))
                threads[0].start()
                threads[0].join(0.3)  # it waits, or has done all its work
            return real(*words, **options)

        monkeypatch.setattr(module, name, calling)
        do()
        threads[0].join(10)
        assert failed == []

    return begin


def test_a_page_is_of_one_of_them(tmp_path, monkeypatch, meanwhile):
    (planned,) = plan_studies([write_study(tmp_path)], "smoke")
    real, wrote = making.write_atomically, []

    def written(path, content):
        wrote.append((threading.get_ident(), path.name))
        real(path, content)

    monkeypatch.setattr("classwise.studies.artefact_files.write_atomically", written)
    monkeypatch.setattr(making, "write_atomically", written)

    def write():
        write_page(planned, Reader(RunsFolder.of(tmp_path / "runs")), tmp_path / "pages")

    meanwhile(write, making, "markdown")  # the first file is written
    (first, name), (last, ended) = wrote[0], wrote[-1]
    assert (name == "index.md", ended) == (False, "index.md")
    who = [one for one, _ in wrote]
    assert len(set(who)) == 2
    assert who == sorted(who, key=[first, last].index)  # first all of the one, then of the other
    assert not list(tmp_path.rglob("*.lock"))


def test_a_record_is_copied_by_one_after_the_other(tmp_path, tiny, monkeypatch, meanwhile):
    monkeypatch.setattr(records, "_predictions", lambda *_: set())  # there are none
    run = short_run(tmp_path / "runs" / "a", "clean", tiny(), epochs=1).path
    (run / "groups").mkdir()
    (run / "groups" / "some.json").write_text("{}")
    (run / "groups" / ".other.json.7.part").write_text("")  # somebody is writing it
    meanwhile(lambda: keep_record(run, tmp_path / "records"), shutil, "copytree")
    kept = tmp_path / "records" / "a"
    assert [path.name for path in (kept / "groups").iterdir()] == ["some.json"]
    assert (kept / "run.json").exists()
    assert not list(tmp_path.rglob("*.lock"))
