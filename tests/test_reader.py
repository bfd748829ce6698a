"""What the reader of an audit gets: every class, with intervals, in every form."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from refusals import refused
from rich.console import Console
from test_report_runs import synthetic_run

from classwise.doors.attacks import PGD
from classwise.judging.audits import AuditedWeights, read_ledger
from classwise.judging.metrics import ClassReport, ConditionReport, count_predictions
from classwise.judging.showing import worst_first
from classwise.record.card import audit_facts
from classwise.record.remarks import note_key, write_remarks
from classwise.report.classes import class_table, csv_table, json_text
from classwise.report.html import load_runs, write_report
from classwise.report.summary import captions, summary_rows
from classwise.report.tables import latex_table, markdown_table, rich_table
from classwise.spelling import same_condition, spell_eps
from classwise.statistics.intervals import wilson, worst_interval

HOSTILE = ("<script>alert(1)</script>", "a|b", "R&D", "50 % off", "two\nlines", "{\\x}_$1^~#")
MANY = pytest.mark.parametrize("count", [2, 10, 100, 1000])


def names_of(count):
    return (*HOSTILE, *(f"class {k}" for k in range(len(HOSTILE), count)))[:count]


def audited(count, *, per_class=20, empty=(), seed=0, unfinished=""):
    """A made-up audit: rates that differ from class to class, under two conditions."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.setdiff1d(np.arange(count), empty), per_class)
    conditions = []
    for name, chance, eps, verdict in (
        ("clean", 0.9, 0.0, "last"),
        ("pgd-20", 0.5, 8 / 255, "any"),
    ):
        rates = np.clip(chance + 0.4 * (random.random(count) - 0.5), 0, 1)
        right = random.random(len(labels)) < rates[labels]
        told = np.where(right, labels, (labels + 1) % count)
        counts = count_predictions(labels, told, count)
        facts = {"eps": eps, "norm": "Linf", "verdict": verdict, "unfinished": unfinished}
        conditions.append(ConditionReport(name, counts, names_of(count), **facts))
    report = ClassReport(conditions, {"eps": 8 / 255, "norm": "Linf"})
    return AuditedWeights("run", "at", "last", "test", report)


def printed(thing, width=100):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(thing)
    return console.export_text()


def shown(audit, *, everything=False, width=120):
    table = class_table(audit, "at", everything=everything, command="classwise --classes all")
    return printed(table, width)


def straight_rows(audit):
    """Hits, sizes, rates and intervals of each class, by plain loops over the confusion."""
    for name, condition in audit.report.items():
        confusion = condition.confusion
        for k, label in enumerate(condition.class_names):
            size, hits = int(confusion[k].sum()), int(confusion[k, k])
            low, high = wilson(hits, size) if size else (None, None)
            yield name, label, size, hits, hits / size if size else None, low, high


class TestLongForms:
    @MANY
    def test_csv_has_a_row_for_every_class_and_condition(self, count):
        audit = audited(count, empty=(1,))
        rows = list(csv.DictReader(io.StringIO(csv_table([audit]))))
        assert len(rows) == 2 * count
        for row, (name, label, size, hits, rate, low, high) in zip(
            rows, straight_rows(audit), strict=True
        ):
            assert (row["condition"], row["class"]) == (name, label)
            assert (row["n"], row["hits"]) == (str(size), str(hits))
            assert row["eps"] == ("0" if name == "clean" else "8/255")
            assert (row["norm"], row["verdict"]) == ("Linf", "last" if name == "clean" else "any")
            if rate is None:
                assert row["accuracy"] == row["low"] == row["high"] == ""
            else:
                found = [float(row[key]) for key in ("accuracy", "low", "high")]
                assert found == pytest.approx([rate, float(low), float(high)], rel=1e-5, abs=1e-9)
        assert "nan" not in csv_table([audit])

    @MANY
    def test_the_worst_class_stands_with_the_interval_of_the_truly_worst(self, count):
        audit = audited(count, empty=(1,))
        rows = list(csv.DictReader(io.StringIO(csv_table([audit]))))
        for name, condition in audit.report.items():
            counts = condition.counts
            low, high = worst_interval(counts.confusion.diagonal().numpy(), counts.sizes.numpy())
            worst = [r for r in rows if r["condition"] == name and r["worst_low"]]
            assert condition.worst_class in [row["class"] for row in worst]
            rates = [float(row["accuracy"]) for row in worst]
            assert rates == pytest.approx([condition.worst] * len(worst))
            assert float(worst[0]["worst_low"]) == pytest.approx(float(low), rel=1e-5, abs=1e-9)
            assert float(worst[0]["worst_high"]) == pytest.approx(float(high), rel=1e-5)
            words = f"{100 * float(low):.1f}–{100 * float(high):.1f}"
            for text in (
                shown(audit), printed(rich_table([audit]), 160), markdown_table([audit]),
                latex_table([audit]).replace("--", "–"), audit.report._repr_html_(),
            ):  # fmt: skip
                assert words in text
            assert f"{low:.1%} to {high:.1%}" in repr(audit.report)

    @MANY
    def test_json_and_dict_are_plain_and_complete(self, count):
        audit = audited(count, empty=(1,))
        (found,) = json.loads(json_text([audit]))["audits"]
        assert (found["run"], found["weights"], found["split"]) == ("run", "last", "test")
        assert {key: found[key] for key in ("about", "conditions")} == audit.report.to_dict()
        told = [
            (one["condition"], *(row[key] for key in ("class", "n", "hits", "accuracy")))
            for one in found["conditions"]
            for row in one["classes"]
        ]
        assert told == [row[:5] for row in straight_rows(audit)]
        robust = found["conditions"][1]
        assert robust["eps"] == 8 / 255
        assert robust["worst_interval"] == list(audit.report["pgd-20"].worst_interval)

    @MANY
    def test_a_frame_has_the_same_rows(self, count):
        frame = audited(count, empty=(1,)).report.to_frame()
        expected = list(straight_rows(audited(count, empty=(1,))))
        assert len(frame) == 2 * count
        assert frame["class"].tolist() == [row[1] for row in expected]
        assert frame["hits"].tolist() == [row[3] for row in expected]
        assert str(frame["accuracy"].dtype) == str(frame["low"].dtype) == "float64"
        assert frame["accuracy"].isna().sum() == 2
        worst = frame[frame.condition == "pgd-20"].sort_values("accuracy").iloc[0]
        assert worst["accuracy"] == audited(count, empty=(1,)).report["pgd-20"].worst

    def test_without_pandas_it_says_what_to_do(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pandas", None)
        with refused("pandas", "classwise[frames]", "to_dict"):
            audited(2).report.to_frame()

    @MANY
    def test_markdown_and_latex_have_every_class_and_keep_names_as_text(self, count):
        audit = audited(count, empty=(1,))
        markdown, latex = markdown_table([audit]), latex_table([audit])
        table = markdown.split("### at, test")[1]
        rows = [line for line in table.splitlines() if line.startswith("|")][2:]
        assert len(rows) == count
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in rows} == {5}
        assert "<script>" not in markdown
        assert rows[-1].count("no samples") == 2
        body = latex[latex.index(r"\endfoot") : latex.index(r"\end{longtable}")]
        lines = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert len(lines) == count
        assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {3}
        if count > len(HOSTILE):
            assert r"\textless{}script\textgreater{}" in latex
            assert r"R\&D" in body
            assert r"50 \% off" in body
            assert "two lines" in body
            assert "R&amp;D" in table


class TestTerminal:
    @MANY
    def test_worst_first_all_up_to_twenty_else_ten_and_the_command(self, count):
        audit = audited(count, empty=(1,))
        text = shown(audit)
        lines = text.splitlines()
        begin = next(i for i, line in enumerate(lines) if "───" in line) + 1
        end = next(i for i, line in enumerate(lines) if line.startswith("Accuracy"))
        rates = audit.report["pgd-20"].rates
        present = [k for k in range(count) if k != 1]
        expected = [*sorted(present, key=lambda k: (rates[k], k)), 1]
        assert worst_first(audit.report) == expected
        listed = expected if count <= 20 else expected[:10]
        assert end - begin == len(listed)
        for line, k in zip(lines[begin:end], listed, strict=True):
            assert line.startswith(" ".join(names_of(count)[k].split()))
            low, high = wilson(rates[k] * 20, 20) if k != 1 else (0, 0)
            if k != 1:
                span = f"{100 * rates[k]:.1f} ({100 * float(low):.1f}–{100 * float(high):.1f})"
                assert span in line
        assert ("classwise --classes all" in " ".join(text.split())) == (count > 20)
        whole = shown(audit, everything=True)
        assert "classwise --classes all" not in whole
        assert sum(name.split()[0] in whole for name in names_of(count)) == count
        assert ("no samples" in text) == (count <= 20)

    def test_the_order_is_that_of_the_strongest_condition_wherever_it_stands(self):
        audit = audited(10)
        turned = ClassReport([audit.report["pgd-20"], audit.report["clean"]])
        assert worst_first(turned) == worst_first(audit.report)

    def test_sizes_that_differ_are_all_said(self):
        first, second = audited(3, per_class=20), audited(3, per_class=60)
        both = ClassReport([first.report["clean"], second.report["pgd-20"]])
        assert "20, 60" in shown(replace(first, report=both))


class Cells(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.words = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        assert not attrs
        self.tags.add(tag)

    def handle_data(self, text):
        self.words.append(text)


class TestNotebook:
    @MANY
    def test_html_is_small_and_escaped(self, count):
        report = audited(count, empty=(1,)).report
        text = report._repr_html_()
        page = Cells(text)
        assert page.tags == {"table", "tr", "th", "td", "p"}
        assert len(text) < 5000
        assert " ".join(report["pgd-20"].worst_class.split()) in page.words
        assert ("report.to_frame()" in text) == (count > 20)
        assert "pgd-20, eps 8/255" in page.words

    @MANY
    def test_repr_is_short_however_many_classes_and_long_their_names(self, count):
        report = audited(count, empty=tuple(range(1, count // 2))).report
        lines = repr(report).splitlines()
        assert len(lines) == 2
        assert all(len(line) < 500 for line in lines)
        long = tuple(f"{'very ' * 50}{k}" for k in range(count))
        renamed = ClassReport([replace(one, class_names=long) for one in report.values()])
        assert all(len(line) < 700 for line in repr(renamed).splitlines())

    @MANY
    def test_a_figure_shows_every_class_with_its_interval(self, count):
        report = audited(count, empty=(1,)).report
        figure = report.plot()
        clean, robust = figure.data
        order = worst_first(report)
        assert (clean.name, robust.name) == ("clean", "pgd-20")
        rates = report["pgd-20"].rates
        assert list(robust.y)[:-1] == pytest.approx([100 * rates[k] for k in order[:-1]])
        assert robust.y[-1] is None
        low, high = report["pgd-20"].intervals[report.class_names[order[0]]]
        assert robust.error_y.array[0] == pytest.approx(100 * high - robust.y[0])
        assert robust.error_y.arrayminus[0] == pytest.approx(robust.y[0] - 100 * low)
        assert not any("<" in text for text in figure.layout.xaxis.ticktext)
        assert not any("<" in text for text in robust.text)


class TestInPart:
    """Images chosen by what was seen of others: no average and no ordinary interval is shown."""

    def test_no_form_shows_an_average(self):
        audit = audited(10, unfinished="60 of 200 images judged")
        overall = f"{100 * audit.report['pgd-20'].overall:.1f}"
        texts = [
            printed(rich_table([audit]), 160), markdown_table([audit]), latex_table([audit]),
            csv_table([audit]), json_text([audit]), repr(audit.report),
            audit.report._repr_html_(), shown(audit),
        ]  # fmt: skip
        assert not any(overall in text for text in texts)
        assert "overall" not in json_text([audit])
        for text in (texts[0], texts[1], texts[5], texts[6], texts[7]):
            assert "examined in part" in " ".join(text.split())
        rows = list(csv.DictReader(io.StringIO(csv_table([audit]))))
        assert all(row["accuracy"] == row["low"] == row["worst_low"] == "" for row in rows)
        assert all(int(row["n"]) == 20 for row in rows)
        assert audit.report.to_frame()["accuracy"].isna().all()

    def test_whole_audits_beside_it_keep_theirs(self):
        part, whole = audited(10, unfinished="x"), audited(10, seed=1)
        rows = summary_rows([part, replace(whole, run="other")])
        assert [row.label.endswith("examined in part") for row in rows] == [True, False]
        text = markdown_table([part, replace(whole, run="other")])
        assert f"{100 * whole.report['pgd-20'].overall:.1f}" in text

    def test_the_page_says_so_in_every_label_and_shows_no_average(self, tmp_path):
        folder = synthetic_run(tmp_path / "run", 10)
        (one, *_) = [f for f in audit_facts(folder) if f["condition"] == "pgd-20"]
        notes = {note_key(one): "60 of 200 images judged"}
        write_remarks(folder, one["model_hash"], seen={}, probed=None, black_box=False, notes=notes)
        runs = load_runs([folder])
        write_report(runs, tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text()
        summary = page[page.index('<section id="summary">') : page.index('<section id="scatter">')]
        report = runs[0].audits[0].report
        assert report["pgd-20"].unfinished
        assert not report["clean"].unfinished
        assert "examined in part" in summary
        assert f"{100 * report['clean'].overall:.1f}" in summary
        assert f"{100 * report['pgd-20'].overall:.1f}" not in summary


class TestEps:
    @pytest.mark.parametrize("levels", range(1, 17))
    def test_whole_grey_levels_are_fractions_also_in_single_precision(self, levels):
        assert spell_eps(levels / 255) == spell_eps(float(np.float32(levels / 255)))
        assert spell_eps(levels / 255) == f"{levels}/255"

    def test_other_radii_are_plain_numbers(self):
        found = [spell_eps(eps) for eps in (0, 0.2, 51 / 255, 17 / 255, 0.03, 0.5 / 255, 1.5, 3.0)]
        assert found == ["0", "0.2", "0.2", "0.0666667", "0.03", "0.00196078", "1.5", "3"]

    def test_labels_are_read_in_both_spellings_and_no_other(self):
        assert same_condition("pgd-20(eps=51/255) x", "pgd-20(eps=0.2) x")
        assert not same_condition("pgd-20 eps=8/255 seed=0", "pgd-20 eps=8/255 seed=1")
        assert not same_condition("pgd-20 eps=8/255", "pgd-20 eps=7/255")
        assert not same_condition("pgd-20 steps=8", "pgd-20 steps=8.0001")
        assert not same_condition("pgd-20 eps=large", "pgd-20 eps=8/255")

    def test_several_radii_are_spelt_alike_in_labels_tables_and_objects(self, tmp_path):
        conditions = (("pgd-20", 8 / 255, 0.5), ("pgd-20", 0.2, 0.3))
        folder = synthetic_run(tmp_path / "run", 4, conditions=conditions)
        (audit,) = read_ledger(folder)
        assert list(audit.report) == ["pgd-20 eps=8/255 seed=0", "pgd-20 eps=0.2 seed=0"]
        assert [row.eps for row in summary_rows([audit])] == ["8/255", "0.2"]
        for text in (shown(audit), markdown_table([audit]), csv_table([audit]), repr(audit.report)):
            assert "0.031" not in text
        assert "eps=8/255" in repr(PGD(lambda x: x, eps=8 / 255))


def test_a_verdict_stands_beside_its_own_attack_only(tmp_path):
    folder = synthetic_run(tmp_path / "run", 4)
    (run,) = load_runs([folder])
    (kept,) = run.audits
    square = replace(kept.report["pgd-20"], condition="square", verdict="any", norm="L2", eps=0.5)
    both = ClassReport([*kept.report.values(), square], {**kept.report.about, "verdict": "x, y"})
    words = " ".join(captions([replace(kept, report=both)]))
    assert "pgd-20 (Linf, eps 8/255, verdict last)" in words
    assert "square (L2, eps 0.5, verdict any)" in words
    assert "x, y" not in words
