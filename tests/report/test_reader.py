"""What the reader of an audit gets: every class, with intervals, in every form."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from readers import HOSTILE, MANY, audited, names_of, printed, shown
from refusals import refused

from classwise.judging.metrics import ClassReport, ConditionReport, count_predictions
from classwise.judging.showing import worst_first
from classwise.report.classes import csv_table, json_text
from classwise.report.tables import latex_table, markdown_table, rich_table
from classwise.statistics.intervals import wilson, worst_interval


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
        assert (robust["eps"], robust["eps_text"]) == (8 / 255, "8/255")
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
        assert frame.loc[frame.condition == "pgd-20", "eps_text"].unique().tolist() == ["8/255"]
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

    def test_classes_that_are_equal_are_all_counted_where_one_is_named(self):
        labels = np.repeat(np.arange(6), 10)
        right = np.arange(60) % 10 < np.array([9, 9, 5, 9, 9, 5])[labels]
        counts = count_predictions(labels, np.where(right, labels, (labels + 1) % 6), 6)
        said = str(ClassReport([ConditionReport("clean", counts, tuple("abcdef"))]))
        assert "worst class 50.0% (c and 1 more; the truly" in said
        assert "best 90.0% (a and 3 more)" in said
