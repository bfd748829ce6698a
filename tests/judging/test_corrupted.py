"""Corruptions of an audit: pooled classes, mean errors and mCE, by hand and with plain loops."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from classwise.classes.counts import ClassCounts
from classwise.corruptions.severities import C15, C19
from classwise.judging.audits import AuditedWeights
from classwise.judging.corrupted import (
    ALEXNET,
    ALEXNET_CLEAN,
    corruption_report,
    shown_apart,
)
from classwise.judging.metrics import ClassReport, ConditionReport
from classwise.judging.rates import Tally
from classwise.report.classes import json_text
from classwise.report.corruptions import apart, csv_corruptions
from classwise.report.tables import latex_table, markdown_table


def condition(name, predicted, labels, classes, family="", strength=0.0, kind="shift", **more):
    counts = torch.zeros(classes, classes, dtype=torch.int64)
    for label, one in zip(labels, predicted, strict=True):
        counts[label, one] += 1
    return ConditionReport(
        name,
        ClassCounts(counts),
        tuple(f"c{k}" for k in range(classes)),
        kind=kind,
        family=family,
        strength=strength,
        images_key=f"the first {len(labels)}",
        **more,
    )


def made_up(names, severities=(1, 2, 3, 4, 5), classes=4, count=40, seed=0):
    """Synthetic predictions, and the report on them."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % classes

    def said(chance):
        other = rng.integers(0, classes, count)
        return np.where(rng.random(count) < chance, labels, other)

    told = {("clean", 0): said(0.9)}
    found = [condition("clean", told["clean", 0], labels, classes, kind="clean")]
    for name in names:
        for severity in severities:
            told[name, severity] = said(0.8 - 0.12 * severity)
            found.append(
                condition(
                    f"corruption:{name}-{severity}",
                    told[name, severity],
                    labels,
                    classes,
                    f"corruption:{name}",
                    float(severity),
                )
            )
    return ClassReport(found), told, labels


def error(told, labels):
    return sum(int(a != b) for a, b in zip(told, labels, strict=True)) / len(labels)


def test_severities_are_pooled_before_the_minimum():
    report, told, labels = made_up(["fog", "snow"])
    found = corruption_report(report)
    for name in ("fog", "snow"):
        right, seen = [0] * 4, [0] * 4
        for severity in range(1, 6):
            for label, one in zip(labels, told[name, severity], strict=True):
                right[label] += int(label == one)
                seen[label] += 1
        rates = [a / b for a, b in zip(right, seen, strict=True)]
        one = found.corruptions[name]
        assert list(one.by_group.values()) == pytest.approx(rates)
        assert one.worst == pytest.approx(min(rates))
        assert one.worst_group == f"c{rates.index(min(rates))}"
        assert one.gap == pytest.approx(max(rates) - min(rates))
        assert one.error == pytest.approx(
            np.mean([error(told[name, s], labels) for s in range(1, 6)])
        )
        assert one.severities == (1, 2, 3, 4, 5)
    assert found.error == pytest.approx(np.mean([c.error for c in found.corruptions.values()]))


def test_five_verdicts_on_an_image_are_no_five_images():
    report, _, _ = made_up(["fog"], classes=2, count=60)
    one = corruption_report(report).corruptions["fog"]
    alone = one.seen[0]
    for name, (low, high) in one.intervals.items():
        n, rate, z = 30, one.by_group[name], 1.959964
        centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
        half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        assert (low, high) == pytest.approx((centre - half, centre + half), abs=1e-6)
    low, high = one.worst_interval
    assert low < one.worst < high
    assert high - low > 0.5 * (alone.worst_interval[1] - alone.worst_interval[0])


class TestMeanErrors:
    def test_official_mce_by_hand(self):
        report, told, labels = made_up(C19, classes=1000, count=1000)
        found = corruption_report(report)
        mce = relative = 0.0
        for name in C15:
            mean = sum(error(told[name, s], labels) for s in range(1, 6)) / 5
            mce += mean / ALEXNET[name] / 15
            rise = mean - error(told["clean", 0], labels)
            relative += rise / (ALEXNET[name] - ALEXNET_CLEAN) / 15
        assert found.mce == pytest.approx(mce)
        assert found.relative_mce == pytest.approx(relative)
        assert found.missing == ""
        nineteen = np.mean([error(told[n, s], labels) for n in C19 for s in range(1, 6)])
        assert found.error == pytest.approx(nineteen)

    def test_alexnet_itself_has_100(self):
        counts = 1000
        report, *_ = made_up(C15, classes=1000, count=counts)
        found = corruption_report(report)
        shares = {name: found.corruptions[name].error for name in C15}
        assert found.mce == pytest.approx(np.mean([shares[n] / ALEXNET[n] for n in C15]))
        # per severity, as issue 10 of hendrycks/robustness has them
        gaussian = (0.69528, 0.82542, 0.93554, 0.98138, 0.99452)
        assert np.mean(gaussian) == pytest.approx(ALEXNET["gaussian_noise"], abs=1e-6)
        brightness = (0.4514, 0.48502, 0.54048, 0.62166, 0.7244)
        assert np.mean(brightness) == pytest.approx(ALEXNET["brightness"], abs=1e-6)

    @pytest.mark.parametrize(
        ("names", "severities", "classes", "words"),
        [
            (C15, (1, 2, 3, 4, 5), 10, "those on ImageNet"),
            (C15[:14], (1, 2, 3, 4, 5), 1000, "1 of its 15 corruptions"),
            (C15, (1, 3), 1000, "not all five severities"),
        ],
    )
    def test_none_where_it_is_not_defined(self, names, severities, classes, words):
        found = corruption_report(made_up(names, severities, classes, classes)[0])
        assert found.mce is None
        assert found.relative_mce is None
        assert words in found.missing

    def test_no_relative_one_without_the_same_clean_images(self):
        report, *_ = made_up(C15, classes=1000, count=1000)
        rest, more = [one for one in report.values() if one.kind != "clean"], [*range(1000)] * 2
        for clean in ([], [condition("clean", more, more, 1000, kind="clean")]):
            found = corruption_report(ClassReport([*clean, *rest]))
            assert (found.mce is None, found.relative_mce) == (False, None)
        audit = AuditedWeights("run", "at", "last", "test", ClassReport([*clean, *rest]))
        assert "No relative mCE" in " ".join(apart([audit])[1][0].words)


def test_few_corruptions_stand_among_the_others():
    report, *_ = made_up(["fog"], (1, 2, 3))
    plain, many = shown_apart(report)
    assert plain is report
    assert many is None
    report, *_ = made_up(["fog"], (1, 2, 3, 4))
    plain, many = shown_apart(report)
    assert list(plain) == ["clean"]
    assert list(many.corruptions) == ["fog"]
    assert shown_apart(ClassReport([report["clean"]]))[1] is None


def test_sets_from_files_stand_beside_ours():
    report, _, labels = made_up(["fog"])
    read = condition("x", labels, labels, 4, "corruption:fog", 3.0, options="files=C")
    found = corruption_report(ClassReport([*report.values(), read]))
    assert list(found.corruptions) == ["fog", "fog (files=C)"]
    assert found.corruptions["fog (files=C)"].severities == (3,)


def in_groups(report, told, labels, of):
    """The same report with a group for each image; `of` has None for an image in none."""
    names = tuple(sorted({name for name in of if name}))
    found = []
    for one in report.values():
        name, _, severity = one.condition.removeprefix("corruption:").rpartition("-")
        right = told[name or one.condition, int(severity) if name else 0] == labels
        hits, sizes = (
            np.array(
                [sum(g == group and ok for g, ok in zip(of, good, strict=True)) for group in names]
            )
            for good in (right, np.ones(len(labels), bool))
        )
        tally = Tally(names, hits, sizes, False, sum(name is None for name in of))
        found.append(replace(one, groups={"camera": tally}))
    return ClassReport(found)


CAMERAS = [["front", "rear", "rear", None][k % 4] for k in range(12)] + ["front"] * 28


class TestGroups:
    @pytest.fixture
    def report(self):
        report, told, labels = made_up(["fog", "snow"])
        return in_groups(report, told, labels, CAMERAS), told, labels

    def test_severities_are_pooled_by_plain_loops(self, report):
        report, told, labels = report
        found = corruption_report(report)
        assert found.groupings == ["camera"]
        every = {"front": [], "rear": []}
        for name, one in found.corruptions.items():
            pooled = {"front": [], "rear": []}
            for severity in range(1, 6):
                for group, said, label in zip(CAMERAS, told[name, severity], labels, strict=True):
                    if group:
                        pooled[group].append(said == label)
                        every[group].append(said == label)
            by_hand = {group: sum(right) / len(right) for group, right in pooled.items()}
            assert one.by("camera").by_group == pytest.approx(by_hand)
            assert one.overall == one.by("camera").overall  # images in no group count, too
        whole = found.together.by("camera")
        assert whole.by_group == pytest.approx({g: sum(r) / len(r) for g, r in every.items()})
        assert whole.images_of == {"front": 31, "rear": 6}
        n, rate, z = 6, whole.by_group["rear"], 1.959964
        half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        low, high = whole.intervals["rear"]
        assert high - low == pytest.approx(2 * half, abs=1e-6)

    def test_tables_have_every_group(self, report):
        audit = AuditedWeights("run", "at", "last", "test", report[0])
        (table,) = apart([audit])[1]
        (groups,) = table.groups
        found = corruption_report(report[0])
        average = found.together.by("camera").by_group
        assert [row[0] for row in groups.rows] == sorted(average, key=average.get)
        for row, worst in zip(groups.rows, groups.worst, strict=True):
            rates = [one.by("camera").by_group[row[0]] for one in found.corruptions.values()]
            assert list(row[3:]) == [f"{100 * rate:.1f}" for rate in rates]
            assert row[2].startswith(f"{100 * average[row[0]]:.1f} (")
            assert worst.startswith(f"{100 * min(rates):.1f} (")
        for text in (markdown_table([audit]), latex_table([audit])):
            assert text.count("corruptions, by camera") == 1
        said = json.loads(json_text([audit]))["audits"][0]["corruptions"]
        fog = found.corruptions["fog"].by("camera").by_group
        assert said["corruptions"][0]["groups"] == {"camera": pytest.approx(fog)}


def test_severities_that_saw_other_numbers_of_images():
    """One severity on 40 images of 40 classes, four on 8 of them."""
    labels = np.arange(40)
    whole = condition("corruption:fog-3", labels, labels, 40, "corruption:fog", 3.0)
    few = [
        condition(f"corruption:fog-{s}", labels[:8], labels[:8], 40, "corruption:fog", float(s))
        for s in (1, 2, 4, 5)
    ]
    found = corruption_report(ClassReport([whole, *few]))
    one = found.corruptions["fog"]
    assert one.images == (8, 40)
    assert set(one.images_of.values()) == {1}
    assert one.worst_interval[1] == 1.0
    assert one.intervals["c39"] == one.intervals["c0"] != (0.0, 1.0)
    audit = AuditedWeights("run", "at", "last", "test", ClassReport([whole, *few]))
    (table,) = apart([audit])[1]
    assert "Not all saw the same images (8 to 40)" in " ".join(table.words)


class TestFormats:
    @pytest.fixture
    def audit(self):
        report, *_ = made_up(["fog", "snow"])
        return AuditedWeights("run", "at", "last", "test", report)

    def test_tables_have_every_class_and_corruption(self, audit):
        rest, (table,) = apart([audit])
        assert list(rest[0].report) == ["clean"]
        assert [row[0] for row in table.rows] == ["fog", "snow"]
        pooled = corruption_report(audit.report).corruptions["snow"]
        assert table.rows[1][2].startswith(f"{100 * pooled.worst:.1f} ({pooled.worst_group}; ")
        assert [row[0] for row in table.classes] == ["c0", "c1", "c2", "c3"]
        assert table.classes[2][2] == f"{100 * pooled.by_group['c2']:.1f}"
        for text in (markdown_table([audit]), latex_table([audit])):
            assert table.rows[0][1] in text
            assert "corruption:fog-3" not in text  # 10 columns more would say less

    def test_csv_and_json_are_long(self, audit):
        lines = csv_corruptions([audit]).splitlines()
        assert len(lines) == 1 + 2 * 4
        pooled = corruption_report(audit.report).corruptions["fog"]
        assert f",fog,1 2 3 4 5,c0,50,{int(pooled.tally.hits[0])}," in lines[1]
        said = json.loads(json_text([audit]))["audits"][0]["corruptions"]
        assert said["mce"] is None
        assert said["corruptions"][1]["classes"]["c3"] == pytest.approx(
            corruption_report(audit.report).corruptions["snow"].by_group["c3"]
        )
        plain = AuditedWeights("run", "at", "last", "test", ClassReport([audit.report["clean"]]))
        assert csv_corruptions([plain]) == ""
