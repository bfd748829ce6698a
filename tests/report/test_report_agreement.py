"""Agreement on the page and in files: every run and class is there, as text, and drawn."""

import csv
import io
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from agreeing import audited_run, history
from test_report_groups import BROWSER
from test_report_html import Page, data_of
from test_report_runs import NASTY, class_names, synthetic_run

import classwise
from classwise.doors.folders import report, write_agreement
from classwise.record.means import ClassMeans, write_means

NODE = shutil.which("node")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    return [synthetic_run(place / f"run{k}", 5, seed=k, per_class=60) for k in range(3)]


@pytest.fixture(scope="module")
def found(runs):
    return classwise.agree(runs, draws=200)


def test_a_report_of_several_runs_has_the_section(runs, tmp_path):
    report(runs, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    page = Page(text)
    assert "Agreement between runs" in page.words
    assert NASTY[0] not in text
    assert page.tags.count("script") == 3
    first, second = data_of(text)["agreement"]
    assert (first["condition"], second["condition"]) == ("pgd-20", "clean")
    assert first["classes"] == class_names(5)
    assert np.array(first["ranks"]).shape == (3, 5)


def test_one_run_has_none_and_runs_apart_say_why(runs, tmp_path):
    report(runs[:1], tmp_path / "one.html")
    assert 'id="agreement"' not in (tmp_path / "one.html").read_text()
    other = synthetic_run(tmp_path / "other", 5, conditions=(("fgsm", 0.1, 0.5),))
    report([runs[0], other], tmp_path / "two.html")
    text = (tmp_path / "two.html").read_text()
    assert data_of(text)["agreement"] == []
    assert "no condition in common" in text


def test_files_say_what_was_found(runs, found, tmp_path):
    files = [tmp_path / f"x.{end}" for end in ("md", "csv", "json")]
    written = [path for file in files for path in write_agreement(runs, found, file)]
    assert [path.name for path in written] == ["x.md", "x.csv", "x.classes.csv", "x.json"]
    markdown, pairs, classes, plain = (path.read_text() for path in written)
    rows = list(csv.DictReader(io.StringIO(pairs)))
    assert len(rows) == 2 * 3  # two conditions, three pairs of runs
    strongest = found[1].ranks
    lowest = strongest.pairs[0]
    assert float(rows[3]["spearman"]) == pytest.approx(lowest.value, abs=1e-5)
    assert rows[3]["first"] == strongest.runs[lowest.first]
    rows = list(csv.DictReader(io.StringIO(classes)))
    assert len(rows) == 2 * 5 * 3
    assert {row["class"] for row in rows} == set(class_names(5))
    said = json.loads(plain)["agreements"]
    assert said[1]["verdict"] == found[1].verdict.words
    assert len(said[0]["details"][0]["uneven"]) == said[0]["details"][0]["pairs"]
    assert found[0].verdict.words.split("ρ")[0].split(":")[0] in markdown
    assert "<script>" not in markdown
    widths = {len(re.findall(r"(?<!\\)\|", row)) for row in markdown.splitlines() if row[:1] == "|"}
    assert widths == {5}  # four columns both of measures and of runs


AFTER = """
for (const measure of ["spearman", "overlap"]) {
  byId("agreement-measure").value = measure;
  byId("agreement-measure").listeners.change.forEach((act) => act());
}
const words = (line) => line.children.map((cell) => String(cell.textContent));
console.log(JSON.stringify({
  pairs: drawn["agreement-plot"].traces[0], ranks: drawn["ranks-plot"].traces[0],
  names: drawn["ranks-plot"].layout.yaxis.ticktext, epochs: drawn["epochs-plot"].traces,
  similar: drawn["similarity-plot"].traces[0].z, verdict: byId("agreement-verdict").textContent,
  note: byId("agreement-note").textContent, lines: byId("ranks-body").children.map(words),
  uneven: byId("uneven-body").children.map(words), alike: byId("similarity-note").textContent,
}));
"""


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_scripts_draw_orders_epochs_and_similarity(tmp_path):
    names = class_names(6)
    runs = [
        audited_run(tmp_path / f"run{k}", names=names, model=f"ab{k}", data="cd", seed=k, lr=k + 1)
        for k in range(3)
    ]
    for run in runs:
        history(run, [[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.3, 0.2, 0.3, 0.4, 0.5, 0.6]])
    means = ClassMeans(np.eye(6) + 0.2, np.full(6, 400), tuple(names), "ab0", "cd", "last", "test")
    write_means(runs[0], means)
    (found,) = classwise.agree(runs, draws=200)
    write_agreement(runs, [found], tmp_path / "x.html")
    text = (tmp_path / "x.html").read_text()
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)[-1]
    (tmp_path / "page.js").write_text(BROWSER + scripts.replace('"use strict";', "") + AFTER)
    payload = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1]
    done = subprocess.run(
        [NODE, str(tmp_path / "page.js")],
        input=payload,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    seen, ranks = json.loads(done.stdout), found.ranks
    assert seen["verdict"] == found.verdict.words
    assert seen["pairs"]["z"] == pytest.approx(ranks.measures["overlap"].value, abs=1e-3)
    order = np.argsort(ranks.ranks.mean(0), kind="stable")
    assert np.array(seen["ranks"]["z"]) == pytest.approx(ranks.ranks[:, order].T)
    assert [line[0] for line in seen["lines"]] == [ranks.class_names[k] for k in order]
    assert not [name for name in seen["names"] if "<" in name]
    assert len(seen["epochs"]) == 3
    assert len(seen["uneven"]) == len(found.runs[0].asymmetry.pairs)
    assert "lr (1, 2, 3)" in seen["note"]
    assert np.array(seen["similar"]) == pytest.approx(means.cosines, abs=1e-3)
    assert found.runs[0].similarity.words in seen["alike"]
    assert found.runs[1].similarity is None
