"""`classwise study`: runs, pages, holes, records; nothing is done twice."""

import shutil
import sys

import pytest
from taken_over import take_over
from tiny_studies import Here, study, write_study

from classwise.cli.app import out
from classwise.judging.audits import read_audits
from classwise.record.card import read_run_json
from classwise.studies import making
from classwise.studies.found import Found
from classwise.studies.scale import scale_named
from classwise.studies.study import load_study, study_names

FAILING = '[[runs]]\nrecipe = "clean"\nrow = "none"\ndata = "npz:nowhere.npz"\n'


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


@pytest.mark.parametrize(
    ("words", "device"),
    [
        (("--workers", "2"), "cpu"),
        (("--workers", "1"), "auto"),
        (("--workers", "2", "--device", "mars"), "mars"),
    ],
)
def test_runs_are_made_on_the_device_that_is_named(tmp_path, monkeypatch, words, device):
    here = Here()
    monkeypatch.setattr("tiny_studies.attempt", lambda _: "not now")
    words = (write_study(tmp_path), "--out", tmp_path / "runs", "--only", "clean", *words)
    study(*words, here=here, monkeypatch=monkeypatch)
    assert {job.device for job in here.jobs} == {device}


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
            (["three.toml", "--gpus", "1"], "--gpus has no effect with --on local"),
            (
                ["three.toml", "--from", ".", "--device", "cpu"],
                "--device has no effect with --from",
            ),
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


@pytest.mark.parametrize("name", ["digits", "digits-defaults"])
def test_a_study_of_digits_that_was_taken_over_writes_no_table(tmp_path, monkeypatch, name):
    monkeypatch.setattr("classwise.studies.grid.run_grid", lambda *_, **__: take_over(tmp_path))
    monkeypatch.setattr(sys.modules["classwise.report.runs"], "load_runs", lambda _: [])
    for made in ("markdown", "variations_markdown"):
        monkeypatch.setattr(f"classwise.studies.digits.{made}", lambda *_: "a table")
    result = plain(name, "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "was taken over by" in " ".join(result.stderr.split())
    assert [path.name for path in tmp_path.iterdir()] == [".writer.lock"]


def plain(*words):
    from typer.testing import CliRunner

    from classwise.cli import app

    return CliRunner().invoke(app, ["study", *words])


def test_list_names_every_study_with_its_runs_and_costs(monkeypatch):
    monkeypatch.setattr(out, "_width", 80)
    result = plain("list")
    assert result.exit_code == 0, result.output
    lines, words = result.output.splitlines(), set(result.output.split())
    assert all(len(line) <= 80 for line in lines)
    for name in (*study_names(), "digits", "digits-defaults"):
        assert name in words
        shown = load_study(name).shows if name in study_names() else ""
        assert set(shown.split()) <= words
    said = " ".join(result.output.split())
    assert "smoke: 3 runs, 3 s; minutes: none; hours: none; paper: 3 runs, 45.1 days" in said
    assert "wei: Wei et al., CVPR 2023: CFA" in said
    assert "digits (our own, docs/results.md) every family of methods" in said
    assert "one scale, 5 seeds: 105 runs, 19 min digits-defaults (our own" in said
    assert said.endswith("one scale, 5 seeds: 120 runs, 22 min")
    assert "each theorem holds no runs: all is computed when its page is written" in said  # wei-toy


def test_a_page_without_runs_names_no_images_of_a_scale():
    found = Found(load_study("wei-toy"), "smoke", (), scale_named("smoke").words)
    text = " ".join(making._head(found, found.study))
    assert "Without runs, the same at every scale. Made by" in text
    assert "images" not in text
