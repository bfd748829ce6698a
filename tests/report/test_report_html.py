"""The page: complete, escaped, offline, and free of errors in a real browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from test_report_runs import NASTY, class_names, synthetic_run

from classwise.errors import ClasswiseError
from classwise.judging.group_files import keep_groupings
from classwise.judging.groups import of_samples
from classwise.report import payload
from classwise.report.html import load_runs, write_report
from classwise.report.tables import summary_rows

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--virtual-time-budget=8000",
    "--window-size=1400,2400",
    "--enable-logging=stderr",
    "--v=0",
    "--dump-dom",
]


class Page(HTMLParser):
    """Elements, addresses and text of a page, scripts apart."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses, self.words, self.scripts = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "action")]

    def handle_data(self, text):
        (self.scripts if self.tags[-1:] == ["script"] else self.words).append(text)


def written(tmp_path, num_classes, **options):
    runs = load_runs([synthetic_run(tmp_path / "run", num_classes, **options)])
    write_report(runs, tmp_path / "report.html")
    return runs, (tmp_path / "report.html").read_text()


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


@pytest.mark.parametrize("num_classes", [2, 10, 100, 1000])
def test_every_class_is_there_and_stays_text(tmp_path, num_classes):
    superclasses = 20 if num_classes >= 100 else 0
    runs, text = written(tmp_path, num_classes, superclasses=superclasses, per_class=10)
    page = Page(text)
    words = set(page.words)
    for name in class_names(num_classes):
        assert name in words, "as text, in an element of its own"
        assert html.escape(name).replace("&quot;", "&#34;") in text
    assert NASTY[0] not in text
    assert page.tags.count("script") == 3
    assert data_of(text)["classes"] == class_names(num_classes)
    assert all(address.startswith("#") for address in page.addresses)
    assert "default-src 'none'" in text
    assert not re.search(r"@import|url\(", text[: text.index("</style>")])
    for row in summary_rows(runs[0].audits):
        assert f"{100 * row.robust.worst:.1f}" in text
    assert ("super <3>" in words) == bool(superclasses)
    assert len(text) < 8_000_000


def test_numbers_for_the_scripts_are_the_audited_ones(tmp_path):
    runs, text = written(tmp_path, 10, empty=(5,))
    report = runs[0].audits[0].report["pgd-20"]
    side = data_of(text)["rows"][0]["sides"]["robust"]
    confusion = report.confusion
    assert side["hits"] == confusion.diagonal().tolist()
    assert side["sizes"] == confusion.sum(1).tolist()
    assert side["low"][5] is None
    assert {(k, j): n for k, j, n in side["flows"]} == {
        (k, j): confusion[k, j] for k in range(10) for j in range(10) if k != j and confusion[k, j]
    }
    assert [n for _, _, n in side["flows"]] == sorted((n for *_, n in side["flows"]), reverse=True)
    assert side["mistakes"] == confusion.sum() - confusion.trace()
    assert "no samples" in text
    low, high = report.intervals[class_names(10)[3]]
    assert (side["low"][3], side["high"][3]) == pytest.approx((low, high), abs=1e-4)


def test_superclass_confusion_merges_the_classes(tmp_path):
    runs, text = written(tmp_path, 100, superclasses=20, per_class=5)
    report = runs[0].audits[0].report["pgd-20"]
    side = data_of(text)["rows"][0]["sides"]["robust"]
    merged = report.confusion.reshape(5, 20, 5, 20).sum(axis=(0, 2))  # class k is in k mod 20
    assert side["superclass_confusion"] == merged.tolist()
    assert side["superclass_rates"] == pytest.approx(list(report.by_superclass.values()), abs=1e-3)


def test_curves_show_every_series_and_are_thinned_to_a_budget(tmp_path, monkeypatch):
    _, text = written(tmp_path, 10, epochs=30)
    (curve,) = data_of(text)["curves"]
    assert [series["title"] for series in curve["series"]] == [
        "training, robust",
        "validation, clean",
        "validation, pgd-10",
        "watched, test:clean",
        "setting, margin",
    ]
    assert curve["epochs"] == list(range(1, 31))
    assert curve["series"][0]["by_class"][-1][0] is None
    assert curve["series"][3]["by_class"][-2:] == [None, [0.5]]
    monkeypatch.setattr(payload, "CURVE_BUDGET", 600)
    _, text = written(tmp_path, 10, epochs=30)
    (curve,) = data_of(text)["curves"]
    assert (len(curve["epochs"]), curve["epochs"][0], curve["epochs"][-1]) == (15, 1, 30)
    assert curve["finished"] == 30


def test_a_model_trained_elsewhere_has_no_curves(tmp_path):
    _, text = written(tmp_path, 3, epochs=0, conditions=(("clean", 0.0, 0.9),))
    page = Page(text)
    assert "Training, class by class" not in page.words
    assert "robust" not in page.words


def test_seeds_have_a_table_of_their_own(tmp_path):
    folders = [synthetic_run(tmp_path / f"s{seed}", 10, seed=seed) for seed in (1, 2)]
    write_report(load_runs(folders), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "Over seeds" in text
    assert re.search(r"\d+\.\d ± \d+\.\d", text)


def test_a_run_says_what_it_was_made_with(tmp_path):
    folder = synthetic_run(tmp_path / "run", 3)
    card = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(
        json.dumps({**card, "versions": {"torch": "2.0"}, "threads": 2})
    )
    write_report(load_runs([folder]), tmp_path / "report.html")
    assert "<td>torch 2.0, 2 threads</td>" in (tmp_path / "report.html").read_text()


def test_runs_of_different_classes_are_refused(tmp_path):
    runs = load_runs([synthetic_run(tmp_path / "a", 3), synthetic_run(tmp_path / "b", 4)])
    with pytest.raises(ClasswiseError, match="b and a have different classes"):
        write_report(runs, tmp_path / "report.html")
    with pytest.raises(ClasswiseError, match="nothing to report"):
        write_report([], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


# Try every option of every control, search, sort, then say in the page what came out.
PROBE = """
<script>
addEventListener("load", () => {
  for (const select of document.querySelectorAll("select")) {
    for (const one of [...select.options].slice(0, 6)) {
      select.value = one.value;
      select.dispatchEvent(new Event("change"));
    }
  }
  const add = document.getElementById("curves-add");
  add.value = data.classes[Math.floor(K / 2)];
  add.dispatchEvent(new Event("change"));
  const table = document.getElementById("class-table");
  const find = document.getElementById("table-find");
  const last = [...table.tHead.rows[0].cells].pop();
  last.click();
  const column = [...table.tBodies[0].rows].map(
    (line) => parseFloat(line.lastElementChild.textContent));
  find.value = "ALERT(1)";
  find.dispatchEvent(new Event("input"));
  const visible = [...table.tBodies[0].rows].filter((line) => !line.hidden);
  const probe = document.createElement("pre");
  probe.id = "probe";
  probe.textContent = JSON.stringify({
    charts: document.querySelectorAll(".main-svg").length,
    sorted: column.every((rate, i) => !i || column[i - 1] <= rate),
    found: visible.map((line) => line.cells[0].textContent),
    scripts: document.scripts.length,
    buttons: document.querySelectorAll("[data-title*=loud]").length,
    ticks: [...document.querySelectorAll("#bars-plot .xtick text")].map((one) => one.textContent),
  });
  document.body.append(probe);
});
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium; apt-get install chromium")
@pytest.mark.parametrize("num_classes", [10, 1000])
def test_opens_in_a_browser_without_errors(tmp_path, num_classes):
    superclasses = 20 if num_classes > 10 else 0
    folders = [
        synthetic_run(tmp_path / recipe, num_classes, recipe=recipe, superclasses=superclasses)
        for recipe in ("at", "trades")
    ]
    size = 20 * num_classes
    tracks = of_samples({NASTY[0]: [NASTY[k % 4] for k in range(size)]}, size)
    keep_groupings(folders[0], "", tracks)
    page = tmp_path / "report.html"
    write_report(load_runs(folders), page)
    page.write_text(page.read_text().replace("</body>", PROBE + "</body>"))
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    found = json.loads(html.unescape(re.search(r'id="probe">(.*?)</pre>', done.stdout)[1]))
    assert found["charts"] >= 8
    assert found["sorted"]
    assert found["found"] == [NASTY[0]]
    assert found["scripts"] == 4
    assert found["buttons"] == 0  # nothing offers to send the chart anywhere
    if num_classes == 10:
        assert set(NASTY[1:]) <= set(found["ticks"])
