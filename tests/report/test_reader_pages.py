"""What the reader of an audit gets in notebooks and pages, and of audits in part."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from readers import MANY, audited, printed, shown
from test_report_runs import synthetic_run

from classwise.doors.attacks import PGD
from classwise.judging.audits import read_ledger
from classwise.judging.metrics import ClassReport
from classwise.judging.showing import worst_first
from classwise.record.card import audit_facts
from classwise.record.remarks import note_key, write_remarks
from classwise.report.classes import csv_table, json_text
from classwise.report.html import load_runs, write_report
from classwise.report.summary import captions, summary_rows
from classwise.report.tables import latex_table, markdown_table, rich_table
from classwise.spelling import same_condition, spell_eps


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
