"""Records of a study: small, whole, written run by run, and enough for its pages."""

import shutil

import duckdb
import pytest
import torch
from tiny_studies import Here, study, write_study

from classwise.errors import ClasswiseError
from classwise.report.runs import load_runs
from classwise.studies.making import is_there, plan_studies, write_index
from classwise.studies.records import keep_record, rounded
from classwise.studies.runs_folder import RunsFolder


def table(page):
    return (page / "table-1.csv").read_text()


class TestRecords:
    def test_pages_come_from_records_without_data_or_training(self, home, monkeypatch):
        def closed(*_, **__):
            raise AssertionError

        shutil.move(home / "runs", home / "gone")
        monkeypatch.setattr("classwise.data.sources.open_data", closed)
        monkeypatch.setattr("classwise.studies.grid.run_job", closed)
        words = (home / "three.toml", "--from", home / "records", "--pages", home / "pages")
        result = study(*words)
        assert result.exit_code == 0, result.output
        assert table(home / "pages" / "three") == table(home / "gone" / "three")
        page = (home / "pages" / "three" / "index.md").read_text()
        assert page == (home / "gone" / "three" / "index.md").read_text()
        assert ", 1 thread |" in page  # made with

    def test_they_are_read_like_any_run_and_are_small(self, home):
        runs = sorted(path.parent for path in (home / "runs").glob("*/run.json"))
        for run in runs:
            record = home / "records" / run.name
            (one,), (other,) = load_runs([run]), load_runs([record])
            assert len(other.history) == 2
            assert rounded(one.history) == other.history
            assert one.about["identity"] == other.about["identity"]
            for left, right in zip(one.audits, other.audits, strict=True):
                assert list(left.report) == list(right.report)
                for name in left.report:
                    tables = [each.report[name].counts.confusion for each in (left, right)]
                    assert torch.equal(*tables)
            files = {path.name for path in record.rglob("*") if path.is_file()}
            assert not {name for name in files if name.endswith(".safetensors")}
            (table,) = (record / "predictions").glob("*.parquet")
            columns = "count(logit_gap), max(iterations), count(image)"
            kept = duckdb.execute(f"SELECT {columns} FROM '{table}'").fetchone()
            assert kept == (0, 0, 0)

    def test_no_path_of_this_machine_is_in_them(self, home):
        for path in (home / "records").rglob("*"):
            if path.is_file():
                assert b"/tmp/" not in path.read_bytes(), path

    def test_they_can_be_kept_again_in_the_same_place(self, home):
        run = next((home / "runs").glob("clean-s0-*"))
        before = sorted(path.name for path in (home / "records" / run.name).rglob("*"))
        keep_record(run, home / "records")
        assert sorted(path.name for path in (home / "records" / run.name).rglob("*")) == before

    def test_a_kill_between_runs_leaves_the_records_of_those_before(self, tmp_path, monkeypatch):
        records = tmp_path / "records"
        words = (write_study(tmp_path), "--out", tmp_path / "runs", "--records", records,
                 "--only", "clean", "--only", "at(steps=1)", "--seeds", "1")  # fmt: skip
        killed = study(*words, here=EndsAfterOne(), monkeypatch=monkeypatch)
        assert killed.exit_code != 0
        (first,) = records.iterdir()
        assert load_runs([first])[0].audits
        shutil.rmtree(first)  # as if the kill had come before its record was written
        assert study(*words, here=EndsAfterOne(), monkeypatch=monkeypatch).exit_code == 0
        assert len(list(records.iterdir())) == 2

    def test_a_record_that_is_not_whole_is_none(self, home, monkeypatch):
        run = next((home / "runs").glob("clean-s0-*"))
        before = {path: path.read_bytes() for path in (home / "records" / run.name).rglob("*.*")}

        def full(*_):
            raise OSError(28, "no space left")

        monkeypatch.setattr("classwise.studies.records.sealed_text", full)
        with pytest.raises(ClasswiseError, match="no space left"):
            keep_record(run, home / "records")
        after = {path: path.read_bytes() for path in (home / "records" / run.name).rglob("*.*")}
        assert before == after
        shutil.copytree(run, home / "records" / ".clean-s0.part")
        held = [
            one.path.name for some in RunsFolder.of(home / "records").runs.values() for one in some
        ]
        assert len(held) == 6
        assert ".clean-s0.part" not in held

    def test_one_changed_row_changes_the_cell_and_no_other(self, home):
        page, words = home / "records" / "three", (home / "three.toml", "--from", home / "records")
        assert study(*words).exit_code == 0
        before = table(page).splitlines()
        run = next((home / "records").glob("clean-s0-*"))
        turn_one_row(next((run / "predictions").glob("*.parquet")))
        assert study(*words).exit_code == 0
        after = table(page).splitlines()
        changed = [line for line, old in zip(after, before, strict=True) if line != old]
        assert changed
        assert all(line.startswith("clean,") and "pgd-2" not in line for line in changed)
        assert any(line.startswith("clean,") and line in before for line in after)

    def test_the_index_says_how_much_is_there_and_links_what_has_a_page(self, home):
        write_study(home, "other", epochs=3)
        planned = plan_studies([str(home / f"{name}.toml") for name in ("three", "other")], "smoke")
        for path in (home / "records").glob("clean-s*"):
            shutil.rmtree(path)
        kept = RunsFolder.of(home / "records")
        assert [is_there(one, kept) for one in planned] == [True, False]
        text = write_index(planned, kept, home / "pages").read_text()
        assert "| [three](three/index.md) | nothing of a paper |  | 4 of 6 |" in text
        assert "| other | nothing of a paper |  | 0 of 6 |" in text

    def test_whoever_has_the_records_goes_on_where_they_end(self, home, monkeypatch):
        shutil.move(home / "runs", home / "gone")
        shutil.rmtree(next((home / "records").glob("clean-s1-*")))
        here = Here()
        words = (home / "three.toml", "--out", home / "runs", "--records", home / "records")
        result = study(*words, here=here, monkeypatch=monkeypatch)
        assert result.exit_code == 0, result.output
        (again,) = (job.path.name for job in here.jobs)
        assert again.startswith("clean-s1-")
        assert table(home / "runs" / "three") == table(home / "gone" / "three")
        assert len(RunsFolder.of(home / "records").runs) == 6

    def test_a_record_that_lacks_an_audit_is_made_anew(self, home, monkeypatch):
        shutil.move(home / "runs", home / "gone")
        text = (home / "three.toml").read_text()
        (home / "three.toml").write_text(text.replace('["averaged-last"]', '["averaged-best"]', 1))
        here = Here()
        words = (home / "three.toml", "--out", home / "runs", "--records", home / "records")
        assert study(*words, here=here, monkeypatch=monkeypatch).exit_code == 0
        assert len(here.jobs) == 6
        here.jobs.clear()
        assert study(*words, here=here, monkeypatch=monkeypatch).exit_code == 0
        assert not here.jobs

    def test_a_record_says_which_weights_its_run_had(self, home):
        for some in RunsFolder.of(home / "records").runs.values():
            (one,) = some
            assert "last" in one.weights
            assert any(name.startswith("ema-") for name in one.weights) == ("ema" in one.path.name)

    def test_a_run_that_is_deleted_leaves_a_hole(self, home):
        words = (home / "three.toml", "--from", home / "records")
        for path in (home / "records").glob("clean-s*"):
            shutil.rmtree(path)
        result = study(*words)
        assert result.exit_code == 0
        assert "2 of 6 runs missing" in result.output
        lines = table(home / "records" / "three").splitlines()
        assert all("not run yet" in line for line in lines if line.startswith("clean,"))
        assert any("not run yet" not in line for line in lines if line.startswith("at("))


class EndsAfterOne(Here):
    """An executor that is stopped once it has done a job, if another is left."""

    def run(self, jobs, done):
        super().run(jobs[:1], done)
        if len(jobs) > 1:
            raise KeyboardInterrupt


def turn_one_row(path):
    """Turn one right answer under `clean` into a wrong one; the file has no checksum then."""
    base = duckdb.connect()
    base.execute(f"CREATE TABLE t AS SELECT * FROM '{path}'")
    about = base.execute(
        f"SELECT decode(value) FROM parquet_kv_metadata('{path}') WHERE decode(key) = 'about'"
    ).fetchone()[0]
    right = "condition = 'clean' AND correct"
    sample = base.execute(f"SELECT min(sample) FROM t WHERE {right}").fetchone()
    base.execute("UPDATE t SET predicted = (label + 1) % 10, correct = false "
                 "WHERE condition = 'clean' AND sample = ?", sample)  # fmt: skip
    quoted = about.replace("'", "''")
    base.execute(f"COPY t TO '{path}' (FORMAT parquet, KV_METADATA {{classwise_ledger: '1', "
                 f"about: '{quoted}'}})")  # fmt: skip


def test_a_record_is_made_of_a_run(tmp_path):
    with pytest.raises(ClasswiseError, match="is no training run"):
        keep_record(tmp_path, tmp_path / "records")
