"""Certified and attacked share of each class: counted, paired, written and flagged."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from half_spaces import HalfSpace, at_distances
from scipy import stats

import classwise
from classwise.auditing.flags import check_records
from classwise.classes.counts import ClassCounts
from classwise.judging.audits import read_ledger
from classwise.judging.metrics import ClassReport, ConditionReport
from classwise.judging.smoothed import Bracket, Drawn
from classwise.record.rows import Predictions
from classwise.report.brackets import rows_of
from classwise.report.classes import csv_table
from classwise.report.tables import latex_table, markdown_table

NAMES = ("<b>near", "far", "none")
ATTACKS = "clean,smoothing(n=200,alpha=0.01),smoothed-pgd-5(n=100,m=4,alpha=0.02)"


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """Class 0 near the plane and class 1 far from it, audited in a folder; class 2 is empty."""
    model, folder = HalfSpace(), tmp_path_factory.mktemp("audits")
    images = at_distances(model, [*np.linspace(-0.5, 0.02, 30), *np.linspace(0.1, 0.6, 20)])
    labels = torch.tensor([0] * 30 + [1] * 20)
    images = images.clamp(0, 1)

    class Three(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = model

        def forward(self, x):
            scores = self.inside(x)
            return torch.cat([scores, scores.amin(1, keepdim=True) - 1], 1)

    facts = {"eps": 0.2, "norm": "L2", "class_names": NAMES, "out": folder, "name": "plane"}
    return folder, classwise.audit(Three(), images, labels, attacks=ATTACKS, **facts)


def test_a_bracket_holds_both_shares_and_where_the_truth_lies(audited):
    _, report = audited
    (found,) = report.brackets
    proof, attack = (report[name] for name in list(report)[1:])
    assert (found.certified, found.attacked) == (proof, attack)
    rows = {row["class"]: row for row in found.records()}
    assert rows["none"] == {
        "class": "none", "n": 0, "attacked_n": 0, "abstained": 0, "certified": None,
        "attacked": None, "low": None, "high": None,
    }  # fmt: skip
    for k, name in enumerate(NAMES[:2]):
        row, n = rows[name], (30, 20)[k]
        certified, stands = (int(one.counts.confusion[k, k]) for one in (proof, attack))
        assert (row["n"], row["certified"], row["attacked"]) == (n, certified / n, stands / n)
        assert 0 < certified < stands
        tail = (1 - 0.95 ** (1 / 2)) / 2  # two classes have images
        low = stats.beta.ppf(tail, certified, n - certified + 1)
        high = stats.beta.ppf(1 - tail, stands + 1, n - stands) if stands < n else 1.0
        assert row["low"] == pytest.approx((low - 0.01) / 0.99)
        assert row["high"] == pytest.approx(min(1, high / 0.98))
        assert row["low"] < row["certified"] <= row["attacked"] <= row["high"]


def test_an_attack_on_fewer_images_bounds_what_it_has_seen(audited):
    _, report = audited
    (whole,) = report.brackets
    counts = whole.attacked.counts.confusion.clone()
    counts[1] = 0
    counts[0] = torch.tensor([6, 2, 0])
    fewer = Bracket(whole.certified, replace(whole.attacked, counts=ClassCounts(counts)))
    near, far, _ = fewer.records()
    assert (near["n"], near["attacked_n"], near["attacked"]) == (30, 8, 0.75)
    assert (far["n"], far["attacked_n"], far["attacked"], far["high"]) == (20, 0, None, 1.0)
    assert far["low"] == whole.records()[1]["low"]
    said = {cells[0]: cells for cells in rows_of(fewer)}
    assert said["<b>near"][1] == "30, 8"
    assert said["far"][1::2] == ["20, 0", "no samples", f"{100 * far['low']:.1f}–100.0"]


def test_abstentions_and_short_radii_are_counted_apart(audited):
    _, report = audited
    proof = report["smoothing(n=200,alpha=0.01)"]
    unanswered = proof.counts.unanswered.tolist()
    silent = list(proof.drawn.abstained)
    assert proof.counts.sizes.tolist() == [30, 20, 0]
    assert 0 < silent[0] < unanswered[0]
    assert silent[1] == 0 < unanswered[1]
    assert proof.overall == (50 - sum(unanswered) - int(proof.confusion[0, 1])) / 50


def test_a_ledger_says_the_same(audited):
    folder, report = audited
    (found,) = read_ledger(folder)
    assert json.loads(json.dumps(found.report.to_dict()["brackets"])) == json.loads(
        json.dumps(report.to_dict()["brackets"])
    )
    for name in report:
        assert found.report[name].drawn == report[name].drawn
        assert found.report[name].counts.confusion.equal(report[name].counts.confusion)


def test_tables_say_it_too(audited, tmp_path):
    folder, report = audited
    found = read_ledger(folder)
    rows = list(csv.DictReader(io.StringIO(csv_table(found))))
    by = {(row["class"], row["condition"]): row for row in rows}
    low, high = report.brackets[0].ends
    for k, name in enumerate(NAMES[:2]):
        row = by[name, "smoothed-pgd-5(n=100,alpha=0.02,m=4)"]
        assert float(row["robust_low"]) == pytest.approx(low[k], abs=1e-5)
        assert float(row["robust_high"]) == pytest.approx(high[k], abs=1e-5)
        assert (row["sigma"], row["alpha"]) == ("0.25", "0.02")
        assert by[name, "clean"]["sigma"] == by[name, "clean"]["robust_low"] == ""
    for text in (markdown_table(found), latex_table(found)):
        assert "smoothed with sigma 0.25, radius 0.2" in text
        assert "chance of at most 0.01" in text
    classwise.report(folder, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Certified and attacked" in page
    assert "&lt;b&gt;near" in page
    assert "<b>near" not in page


def told(condition, sigma, eps, hits, kind, **facts):
    """Hits of ten images of each class."""
    confusion = torch.tensor([[h, 10 - h] for h in hits]) @ torch.eye(2, dtype=torch.int64)
    confusion[1] = confusion[1].flip(0)
    drawn = Drawn(sigma, 0.001)
    return ConditionReport(
        condition, ClassCounts(confusion), ("a", "b"), eps=eps, kind=kind, drawn=drawn, **facts
    )


def test_only_bounds_of_the_same_smoothed_model_at_the_same_radius_are_paired():
    proof = told("smoothing", 0.25, 0.5, (4, 5), "certificate")
    attack = told("smoothed-pgd-5", 0.25, 0.5, (6, 7), "attack")
    assert len(ClassReport([proof, attack]).brackets) == 1
    others = [
        told("sigma", 0.5, 0.5, (6, 7), "attack"),
        told("radius", 0.25, 0.25, (6, 7), "attack"),
        told("the model itself", 0.0, 0.5, (6, 7), "attack"),
        told("shifted", 0.25, 0.5, (6, 7), "shifted attack"),
        told("part", 0.25, 0.5, (6, 7), "attack", unfinished="stopped early"),
        told("another proof", 0.25, 0.5, (6, 7), "certificate"),
    ]
    for other in others:
        assert not ClassReport([proof, other]).brackets, other.condition
    assert not ClassReport([replace(proof, kind="shifted certificate"), attack]).brackets


class TestFlag:
    @staticmethod
    def rows(kind, correct, radius, **facts):
        n = len(correct)
        predicted = np.where(correct, 0, 1)
        return Predictions(
            kind, np.arange(n), np.zeros(n, int), predicted, np.ones(n, np.float32),
            np.full(n, radius), np.ones(n, int), np.where(correct, None, kind),
            norm="L2", kind=kind, family=kind, sigma=0.25, alpha=0.01, **facts,
        )  # fmt: skip

    def names(self, broken, radius=0.2, sigma=0.25):
        proof = self.rows("certificate", [True] * 100, 0.2, certified_radius=np.full(100, 0.3))
        attack = self.rows("attack", [k >= broken for k in range(100)], radius)
        attack = replace(attack, sigma=sigma)
        return [flag.name for flag in check_records([proof, attack], ("a", "b"))]

    def test_more_contradictions_than_chance_allows_are_flagged(self):
        assert self.names(10) == ["certificate-broken"]
        assert self.names(10, radius=0.3) == ["certificate-broken"]

    def test_a_few_and_those_outside_are_not(self):
        assert not self.names(3)  # of 100 with a chance of 2 % each
        assert not self.names(50, radius=0.31)
        assert not self.names(50, sigma=0.5)
        assert not self.names(50, sigma=0.0)
