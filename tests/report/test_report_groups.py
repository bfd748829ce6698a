"""Groups on the page and in the tables: 2 to 1000 of them, hostile names, runs that differ."""

import json
import re
import shutil
import subprocess

import pytest
from test_report_html import Page, data_of, written
from test_report_runs import NASTY, synthetic_run

from classwise.judging.group_files import keep_groupings
from classwise.judging.groups import of_samples
from classwise.report.groups import page_groupings
from classwise.report.html import load_runs, write_report
from classwise.report.summary import summary_rows
from classwise.report.tables import latex_table, markdown_table

NODE = shutil.which("node")


def group_names(count):
    return [*NASTY, *(f"group {k}" for k in range(count))][:count]


def grouped_run(folder, num_groups, *, num_classes=5, per_class=400, name="camera", **options):
    """A run whose images are dealt out to groups in turn; the last image is in none."""
    synthetic_run(folder, num_classes, per_class=per_class, **options)
    size = num_classes * per_class
    names = group_names(num_groups)
    entries = [names[k % num_groups] for k in range(size - 1)] + [None]
    keep_groupings(folder, "", of_samples({name: entries}, size))
    return folder


@pytest.mark.parametrize("count", [2, 20, 1000])
def test_every_group_is_on_the_page_and_stays_text(tmp_path, count):
    runs = load_runs([grouped_run(tmp_path / "run", count, name=NASTY[0])])
    write_report(runs, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    page = Page(text)
    assert "Groups" in page.words
    assert page.tags.count("script") == 3
    assert NASTY[0] not in text
    (grouping,) = data_of(text)["groupings"]
    assert grouping["name"] == NASTY[0]
    assert sorted(grouping["names"]) == sorted(group_names(count))
    found = runs[0].audits[0].report.by(NASTY[0])
    for side, condition in (("clean", "clean"), ("robust", "pgd-20")):
        shown = grouping["rows"][0][side]
        assert shown["sizes"] == list(found[condition].sizes.values())
        assert shown["worst_interval"] == pytest.approx(found[condition].worst_interval, abs=1e-3)
        assert shown["outside"] == 1
        low = [found[condition].intervals[name][0] for name in grouping["names"]]
        assert shown["low"] == pytest.approx(low, abs=1e-3)
    assert len(text) < 8_000_000


def test_tables_have_one_for_each_grouping(tmp_path):
    (run,) = load_runs([grouped_run(tmp_path / "run", 4)])
    markdown, latex = markdown_table(run.audits), latex_table(run.audits)
    assert markdown.count("by camera") == 1
    assert "1 image is in no group" in markdown
    for text in (markdown, latex):
        assert text.count("500 ") >= 3  # 2000 images dealt out to four groups
    assert "<script>" not in markdown
    rows = [row for row in markdown.partition("by camera")[2].splitlines() if row[:1] == "|"]
    assert len(rows) == 6  # a head, a rule and four groups
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}


def test_superclasses_are_pooled_among_the_groupings(tmp_path):
    runs, text = written(tmp_path, 20, superclasses=4, per_class=5)
    (grouping,) = data_of(text)["groupings"]
    assert grouping["name"] == "superclass"
    confusion = runs[0].audits[0].report["pgd-20"].confusion
    hits = [sum(int(confusion[k, k]) for k in range(20) if k % 4 == s) for s in range(4)]
    assert grouping["rows"][0]["robust"]["hits"] == hits


def test_no_groups_no_section(tmp_path):
    _, text = written(tmp_path, 3)
    assert 'id="groups"' not in text
    assert data_of(text)["groupings"] == []


def test_runs_may_know_different_groups(tmp_path):
    folders = [grouped_run(tmp_path / "a", 2), grouped_run(tmp_path / "b", 3, recipe="trades")]
    folders.append(synthetic_run(tmp_path / "c", 5, recipe="mart"))
    audits = [audit for run in load_runs(folders) for audit in run.audits]
    (grouping,) = page_groupings(summary_rows(audits))
    assert sorted(grouping["names"]) == sorted(group_names(3))
    sizes = [row["robust"] and row["robust"]["sizes"] for row in grouping["rows"]]
    third = grouping["names"].index(group_names(3)[2])
    assert sizes[0][third] == 0
    assert sizes[1][third] > 0
    assert sizes[2] is None


# Enough of a browser to run the page's scripts: what they draw and write is kept and printed.
BROWSER = """
const made = {};
const drawn = {};
function element() {
  const node = {
    value: "", textContent: "", hidden: false, title: "", className: "", dataset: {},
    style: {setProperty() {}},
    children: [], options: [], rows: [], cells: [], tBodies: [{rows: [], append() {}}],
    tHead: {rows: [{cells: []}], addEventListener() {}},
    classList: {toggle() {}}, clientWidth: 900, listeners: {},
    append(...more) { node.children.push(...more); },
    replaceChildren(...more) {
      node.children = more;
      if (more.length) node.value = String(more[0].value);
    },
    addEventListener(event, act) { (node.listeners[event] ||= []).push(act); },
    querySelectorAll() { return []; }, removeAttribute() {}, setAttribute() {}, getAttribute() {},
  };
  node.parentElement = {classList: {toggle() {}}};
  return node;
}
const document = {
  getElementById: (id) => (made[id] ||= element()), createElement: element,
  querySelectorAll: () => [], documentElement: element(),
};
const getComputedStyle = () => ({getPropertyValue: () => "#000"});
const matchMedia = () => ({addEventListener() {}});
const addEventListener = () => {};
const Plotly = {react: (where, traces, layout) => { drawn[where] = {traces, layout}; }, purge() {}};
document.getElementById("data").textContent = require("fs").readFileSync(0, "utf8");
"""
AFTER = """
const seen = [];
const words = (line) => line.children.map((cell) => String(cell.textContent));
for (let name = 0; name < data.groupings.length; name++) {
  for (const side of ["robust", "clean"]) {
    byId("groups-name").value = String(name);
    byId("groups-side").value = side;
    byId("groups-row").value = "0";
    byId("groups-side").listeners.change.forEach((act) => act());
    seen.push({
      name: data.groupings[name].name, side, note: byId("groups-note").textContent,
      bars: drawn["groups-plot"].traces[0].y, rings: drawn["groups-plot"].traces[1].y,
      hidden: byId("groups-clean").hidden, ticks: drawn["groups-plot"].layout.xaxis.ticktext,
      lines: byId("groups-body").children.map(words),
    });
  }
}
console.log(JSON.stringify(seen));
"""


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_scripts_draw_the_groups_lowest_first(tmp_path):
    folder = grouped_run(tmp_path / "run", 6)
    runs = load_runs([folder])
    write_report(runs, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)[-1]
    code = BROWSER + scripts.replace('"use strict";', "") + AFTER
    (tmp_path / "page.js").write_text(code)
    payload = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1]
    done = subprocess.run(
        [NODE, str(tmp_path / "page.js")],
        input=payload,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    robust, clean = json.loads(done.stdout)
    for seen, condition in ((robust, "pgd-20"), (clean, "clean")):
        found = runs[0].audits[0].report.by("camera")[condition]
        order = sorted(found.by_group, key=lambda name: found.by_group[name])
        assert seen["bars"] == pytest.approx([100 * found.by_group[name] for name in order])
        assert sorted(line[0] for line in seen["lines"]) == sorted(order)
        assert seen["lines"][0][2] == f"{100 * found.worst:.1f}"
        assert seen["hidden"] == (condition == "clean")
        clean = runs[0].audits[0].report.by("camera")["clean"].by_group
        rings = [clean[name] for name in order] if condition != "clean" else []
        assert seen["rings"] == pytest.approx([100 * rate for rate in rings])
        beside = [[f"{100 * rate:.1f}"] for rate in rings] or [[] for _ in order]
        assert [line[4:] for line in seen["lines"]] == beside
        assert f"worst group {found.worst_group}" in seen["note"]
        assert "1 image is in no group" in seen["note"]
        assert not [tick for tick in seen["ticks"] if "<" in tick]
