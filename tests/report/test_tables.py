"""The summary table in all its spellings."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pytest
from rich.console import Console
from test_report_runs import NASTY, synthetic_run

from classwise.judging.audits import AuditedWeights
from classwise.judging.metrics import ClassReport, ConditionReport, count_predictions
from classwise.report.html import load_runs
from classwise.report.seeds import seed_rows
from classwise.report.summary import cell, measured
from classwise.report.tables import (
    csv_table,
    latex_table,
    markdown_table,
    rich_table,
    summary_rows,
)

MATRIX = np.array([[8, 1, 1], [3, 4, 3], [0, 1, 1]])  # unbalanced: 10, 10 and 2 samples


def condition(name, matrix, names=("ant", "bee", "cat")):
    true, called = np.nonzero(matrix)
    times = matrix[true, called]
    counts = count_predictions(np.repeat(true, times), np.repeat(called, times), len(matrix))
    return ConditionReport(name, counts, tuple(names))


def audited(*, weights="last", recipe="at", run="r", split="test", eps="8/255", attacks=None):
    conditions = [condition("clean", 2 * np.eye(3, dtype=int) + MATRIX)]
    conditions += [condition(name, MATRIX) for name in attacks or ("pgd-20",)]
    about = {"eps": eps, "norm": "Linf", "verdict": "last"}
    return AuditedWeights(run, recipe, weights, split, ClassReport(conditions, about))


def in_terminal(audits, width=160):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(rich_table(audits))
    return console.export_text()


def test_a_single_long_name_stands_whole_above_its_numbers():
    name = "networks/efficientnet-lite0-57934424.pth"
    one = in_terminal([audited(recipe=name)], width=80)
    assert name in one.splitlines()[0]
    assert "recipe" not in one
    beside = in_terminal([audited(recipe=name), audited()], width=80)
    assert "recipe" in beside
    assert "recipe" in in_terminal([audited()], width=80)


def labels(audits):
    return [row.label for row in summary_rows(audits)]


def test_numbers_are_the_straight_line_ones():
    (row,) = summary_rows([audited()])
    rates = np.array([8 / 10, 4 / 10, 1 / 2])
    assert measured(row.robust, "average")[0] == pytest.approx(13 / 22)
    assert measured(row.robust, "worst") == (pytest.approx(0.4), ("bee",))
    assert measured(row.robust, "best") == (pytest.approx(0.8), ("ant",))
    assert measured(row.robust, "spread")[0] == pytest.approx(rates.std())
    assert measured(row.clean, "average")[0] == pytest.approx(19 / 28)
    assert measured(row.robust, "tail") == (None, ())  # three classes have no worst tenth
    for text in (markdown_table([audited()]), latex_table([audited()]), in_terminal([audited()])):
        for number in ("59.1", "40.0", "80.0", "17.0", "67.9", "bee", "8/255", "pgd-20"):
            assert number in text


def test_all_classes_that_share_the_worst_are_named():
    matrix = np.array([[0, 2, 0], [0, 2, 0], [0, 4, 0]])
    audits = [AuditedWeights("r", "at", "last", "test", ClassReport([condition("clean", matrix)]))]
    (row,) = summary_rows(audits)
    assert measured(row.clean, "worst")[1] == ("ant", "cat")
    assert "0.0 (ant, cat; 0.0–" in markdown_table(audits)


def test_rows_are_named_by_what_differs():
    plain = [audited(), audited(weights="best")]
    assert labels(plain) == ["at", "at (best)"]
    averaged = [
        audited(recipe="at+ema", weights=w) for w in ("ema-best", "ema-last", "best", "last")
    ]
    assert labels(averaged) == [
        "at+ema (live)",
        "at+ema (live, best)",
        "at+ema (ema)",
        "at+ema (ema, best)",
    ]
    assert labels([audited(recipe="at+ema")]) == ["at+ema (live)"]  # the average is not audited
    assert labels([audited(recipe="my model")]) == ["my model"]
    assert labels([audited(), audited(split="valid")]) == ["at, test", "at, valid"]
    assert labels([audited(), audited(run="s", eps="4/255")]) == [
        "at, Linf eps 8/255",
        "at, Linf eps 4/255",
    ]
    assert labels([audited(), audited(run="s")]) == ["at [r]", "at [s]"]
    both = audited(attacks=("pgd-20 eps=0.1 seed=0", "pgd-20 eps=0.2 seed=0"))
    assert labels([both]) == ["at, pgd-20 eps=0.1 seed=0", "at, pgd-20 eps=0.2 seed=0"]


def test_clean_only_audits_have_no_robust_columns():
    audit = audited()
    audit = AuditedWeights("r", "at", "last", "test", ClassReport([audit.report["clean"]]))
    text = markdown_table([audit])
    assert "clean" in text
    assert "robust" not in text.lower()
    mixed = summary_rows([audit, audited(run="s")])
    assert [cell(row, "worst", "robust")[0] for row in mixed] == ["–", "40.0"]
    assert "–" in markdown_table([audit, audited(run="s")])


def test_the_worst_tenth_is_named(tmp_path):
    (run,) = load_runs([synthetic_run(tmp_path / "r", 40)])
    tail = run.audits[0].report["pgd-20"].tail(0.1)
    (row,) = summary_rows(run.audits)
    assert measured(row.robust, "tail") == tail
    assert "and 1 more" in markdown_table(run.audits)
    assert "Worst 10 % of classes" in markdown_table(run.audits)


def test_a_terminal_of_80_columns_loses_no_number(tmp_path):
    (run,) = load_runs([synthetic_run(tmp_path / "r", 40, recipe="trades+ccm+ema")])
    lines = in_terminal(run.audits, width=80)
    report = run.audits[0].report["pgd-20"]
    for rate in (report.overall, report.worst, report.tail(0.1).mean, report.best, report.spread):
        assert f"{100 * rate:.1f}" in lines
    assert "too few samples for a worst-class claim" in " ".join(lines.split())


def test_too_few_samples_are_said_of_a_row_that_is_named():
    said = "there are too few samples for a worst-class claim: "
    assert f"For at under pgd-20 {said}" in markdown_table([audited()])
    clean = ClassReport([condition("clean", MATRIX)])
    alone = AuditedWeights("r", "at", "last", "test", clean)
    assert f"For at under clean {said}" in markdown_table([alone])
    better = condition("fgsm", MATRIX + np.eye(3, dtype=int))
    two = ClassReport([condition("pgd-20", MATRIX), better])
    both = AuditedWeights("r", "at", "last", "test", two)
    assert f"For at, pgd-20 {said}" in markdown_table([both])  # the harder one
    other = AuditedWeights("q", "trades", "last", "test", ClassReport([better]))
    assert f"For trades, fgsm, the best on average, {said}" in markdown_table([both, other])


def test_conditions_on_other_numbers_of_samples_say_so():
    words = " ".join(markdown_table([audited(attacks=("pgd-20", "fgsm"))]).split())
    assert "Split test: 28 samples, 4 to 12 per class (clean; pgd-20, fgsm: 22)." in words
    alike = AuditedWeights("r", "at", "last", "test", ClassReport([condition("clean", MATRIX)]))
    assert "Split test: 22 samples, 2 to 10 per class." in markdown_table([alike])


def test_classes_without_samples_are_said_to_have_none(tmp_path):
    (run,) = load_runs([synthetic_run(tmp_path / "r", 10, empty=(7,))])
    assert "no samples: class 7" in markdown_table(run.audits)
    assert "no samples: class 7" in " ".join(in_terminal(run.audits).split())
    assert "nan" not in csv_table(run.audits)


def test_hostile_names_stay_text():
    names = (NASTY[0], NASTY[2], NASTY[3])
    report = ClassReport([condition("clean", MATRIX, names)])
    audits = [AuditedWeights("r", "at", "last", "test", report)]
    markdown, latex = markdown_table(audits), latex_table(audits)
    assert "<script>" not in markdown
    assert r"100 % $x\_1$ {\\}" in markdown
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines[:3]} == {6}
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines[3:]} == {4}
    assert r"100 \% \$x\_1\$ \{\textbackslash{}\}" in latex
    assert r"\textless{}script\textgreater{}alert(1)" in latex
    rows = list(csv.DictReader(io.StringIO(csv_table(audits))))
    assert [row["class"] for row in rows] == list(names)
    assert "<script>alert(1)</script>" in in_terminal(audits)


def test_latex_is_well_formed():
    latex = latex_table([audited(), audited(weights="best")])
    body = latex[latex.index(r"\midrule") : latex.index(r"\bottomrule")]
    columns = re.search(r"\\begin\{tabular\}\{(\w+)\}", latex)[1]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert {row.count("&") + 1 for row in rows} == {len(columns)} == {9}
    assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-5}" in latex
    assert latex.count("{") == latex.count("}")


def test_seeds_give_mean_and_sample_deviation(tmp_path):
    folders = [synthetic_run(tmp_path / f"s{seed}", 10, seed=seed) for seed in (1, 2, 3)]
    runs = load_runs([*folders, synthetic_run(tmp_path / "other", 10, recipe="trades", seed=1)])
    (row,) = seed_rows(runs)
    worst = [run.audits[0].report["pgd-20"].worst for run in runs[:3]]
    found = row.cells["worst", "robust"]
    assert (row.label, row.seeds) == ("at", (1, 2, 3))
    assert found.over.mean == pytest.approx(np.mean(worst))
    assert found.over.deviation == pytest.approx(np.std(worst, ddof=1))
    assert sum(times for _, times in found.classes) >= 3
