"""`classwise study`: runs, pages, holes, records; nothing is done twice."""

import shutil

import duckdb
import pytest
import torch
from tiny_studies import Here, study, write_study

from classwise.errors import ClasswiseError
from classwise.judging.audits import read_audits
from classwise.record.card import read_run_json
from classwise.report.runs import load_runs
from classwise.studies.kept import Kept
from classwise.studies.records import keep_record, rounded
from classwise.studies.study import study_names

FAILING = '[[runs]]\nrecipe = "clean"\nrow = "none"\ndata = "npz:nowhere.npz"\n'


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A study that was run once, with its records."""
    home = tmp_path_factory.mktemp("studies")
    with pytest.MonkeyPatch.context() as patch:
        here = Here()
        words = (write_study(home), "--out", home / "runs", "--records", home / "records")
        result = study(*words, here=here, monkeypatch=patch)
    assert result.exit_code == 0, result.output
    assert len(here.jobs) == 6
    return home


@pytest.fixture
def home(made, tmp_path):
    shutil.copytree(made, tmp_path / "home")
    return tmp_path / "home"


def table(page):
    return (page / "table-1.csv").read_text()


def test_the_page_has_the_artefact_and_says_who_the_runs_are(made):
    text = (made / "runs" / "three" / "index.md").read_text()
    assert "# Three recipes" in text
    assert "Scale smoke: made-up images" in text
    assert "not the paper's scale" in text
    for path in (made / "runs").glob("*/run.json"):
        assert read_run_json(path.parent)["identity"] in text
    assert "torch" in text
    assert "at(steps=1)+ema" in table(made / "runs" / "three")


def test_finished_runs_are_never_repeated_and_a_lost_one_is(home, monkeypatch):
    before = table(home / "runs" / "three")
    words = (home / "three.toml", "--out", home / "runs")
    again = Here()
    assert study(*words, here=again, monkeypatch=monkeypatch).exit_code == 0
    assert again.jobs == []
    lost = next((home / "runs").glob("clean-s1-*"))
    shutil.rmtree(lost)
    shutil.rmtree(next((home / "runs").glob("clean-s0-*")) / "predictions")
    assert study(*words, here=again, monkeypatch=monkeypatch).exit_code == 0
    assert {job.path.name[:8] for job in again.jobs} == {"clean-s0", "clean-s1"}
    assert lost.is_dir()
    assert table(home / "runs" / "three") == before


def test_only_some_and_another_study_shares_their_runs(home, monkeypatch):
    shutil.rmtree(home / "runs")
    words = (home / "three.toml", "--out", home / "runs")
    result = study(*words, "--only", "*ema", "--seeds", "1", here=Here(), monkeypatch=monkeypatch)
    assert "2 of 3 runs missing" in result.output
    other = write_study(home, "other", more='[watch]\nlooks = "test:clean"\n')
    text = (home / "other.toml").read_text().replace('"pgd-2"', '"pgd-3"', 1)
    (home / "other.toml").write_text(text.replace("[watch]", "#").replace("looks", "#"))
    here = Here()
    assert study(other, "--out", home / "runs", "--only", "*ema", "--seeds", "1", here=here,
                 monkeypatch=monkeypatch).exit_code == 0  # fmt: skip
    (run,) = {path.parent for path in (home / "runs").glob("*/run.json")}
    assert [job.path for job in here.jobs] == [run]
    (audit,) = [one for one in read_audits(run, read_run_json(run)) if one.weights == "ema-last"]
    assert {"clean", "pgd-2", "pgd-3"} == set(audit.report)
    assert "pgd-3" not in table(home / "runs" / "three")


def test_a_run_that_fails_is_a_hole_with_its_words_and_the_exit_code_is_1(tmp_path, monkeypatch):
    path = write_study(tmp_path, more=FAILING)
    words = (path, "--out", tmp_path / "runs", "--only", "none", "--only", "clean", "--seeds", "1")
    result = study(*words, here=Here(), monkeypatch=monkeypatch)
    assert result.exit_code == 1, result.output
    assert "1 runs failed" in result.output
    page = (tmp_path / "runs" / "three" / "index.md").read_text()
    assert "failed: " in page
    assert "nowhere.npz" in page
    assert "not run yet" in page  # the recipes that were not wanted now
    assert len(list((tmp_path / "runs").glob("clean-s0-*/predictions"))) == 1
    (note,) = (tmp_path / "runs").glob("*.failed.json")
    assert "nowhere.npz" in note.read_text()


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
        held = [one.path.name for some in Kept.of(home / "records").runs.values() for one in some]
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


class TestBeforeAnythingRuns:
    def test_a_dry_run_lists_what_is_left_with_its_cost(self, home, tmp_path):
        words = ("--dry-run", "--only", "clean", "--seeds", "1", "--workers", "2")
        result = study(home / "three.toml", "--out", home / "runs", *words)
        assert "1 runs are there, 0 are left" in result.output
        result = study(home / "three.toml", "--out", tmp_path / "new", *words)
        assert "0 runs are there, 1 are left" in result.output, result.output
        assert "1 runs: about" in result.output
        assert not (tmp_path / "new").exists()

    def test_a_budget_is_kept(self, home, tmp_path):
        words = ("--budget", "0", "--only", "clean", "--seeds", "1", "--out", tmp_path / "new")
        result = study(home / "three.toml", *words)
        assert result.exit_code == 2
        assert "over the budget of 0 hours" in result.stderr
        assert not (tmp_path / "new").exists()

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["nothing"], "unknown study 'nothing'"),
            (["three.toml", "--only", "*cfa*"], "unknown run (--only)"),
            (["three.toml", "--on", "mars"], "unknown place to run (--on) 'mars'"),
            (["three.toml", "--seeds", "0"], "--seeds 0: give at least 1"),
            (["three.toml", "--from", "nowhere"], "there is no such folder of records"),
            (["three.toml", "--from", ".", "--dry-run"], "--dry-run has no effect with --from"),
            (["three.toml", "--table", "x"], "--table has no effect"),
            (["digits", "--only", "x"], "--only has no effect with digits"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, tmp_path, monkeypatch, words, says):
        monkeypatch.chdir(tmp_path)
        write_study(tmp_path)
        result = plain(*words) if words[0] == "digits" else study(*words)
        assert result.exit_code == 2, result.output
        assert says in result.stderr
        assert not (tmp_path / "runs").exists()

    def test_an_artefact_that_names_no_axis_is_told_before_anything_runs(self, tmp_path):
        path = write_study(tmp_path, more='[[artefact]]\nkind = "table"\ntitle = "T"\n'
                           'where = { rwo = "x" }\n')  # fmt: skip
        result = study(path, "--out", tmp_path / "runs")
        assert result.exit_code == 2
        assert "rwo" in result.stderr
        assert not (tmp_path / "runs").exists()


def plain(*words):
    from typer.testing import CliRunner

    from classwise.cli import app

    return CliRunner().invoke(app, ["study", *words])


def test_list_names_every_study_with_its_runs_and_costs(monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    result = plain("list")
    assert result.exit_code == 0, result.output
    for name in (*study_names(), "digits", "digits-defaults"):
        assert name in result.output


def test_a_record_is_made_of_a_run(tmp_path):
    with pytest.raises(ClasswiseError, match="is no training run"):
        keep_record(tmp_path, tmp_path / "records")
