"""What a class has on the images that train, and on test images, at both radii."""

import numpy as np
import pytest
from trained_runs import NAMES, column, found_runs, history, record

from classwise.studies.artefacts.overfitting import OverfittingOptions, overfitting

TRAIN, OWN, JUDGED = (np.random.default_rng(n).random((4, 4)).round(3) for n in range(3))
SMALL = {"eps": 1 / 255, "judge_eps": 8 / 255}


def options(**more):
    return OverfittingOptions(kind="overfitting", title="Overfitting", **more)


def runs(**more):
    looks = {
        "training:robust": TRAIN.tolist(),
        "test:pgd-10(eps=1/255)": OWN.tolist(),
        "test:pgd-10": JUDGED.tolist(),
    }
    return found_runs(({"recipe": "at"}, record(history(looks | more), **SMALL)))


def test_the_gap_has_two_parts():
    made = overfitting(runs(), options(classes=["cat"]))
    place = ("at", "cat")
    train, own, judged = (float(one[-1, 2]) for one in (TRAIN, OWN, JUDGED))
    assert column(made, "train, own radius", *place).rates == (train,)
    assert column(made, "test, own radius", *place).rates == (own,)
    assert column(made, "test, judge's radius", *place).rates == (judged,)
    assert column(made, "train minus test", *place).rates == pytest.approx([train - judged])
    assert column(made, "of it: other images", *place).rates == pytest.approx([train - own])
    assert column(made, "of it: other radius", *place).rates == pytest.approx([own - judged])


def test_the_fall_is_from_the_highest_look_at_test():
    made = overfitting(runs(), options(classes=["overall", "worst"]))
    for name, line in (("overall", JUDGED.mean(1)), ("worst", JUDGED.min(1))):
        top = int(line.argmax())
        assert column(made, "highest on test", "at", name).rates == pytest.approx([line[top]])
        assert column(made, "at epoch", "at", name).rates == (top + 1,)
        assert column(made, "fall since then", "at", name).rates == pytest.approx(
            [line[top] - line[-1]]
        )


def test_all_classes_have_a_row_and_a_panel():
    made = overfitting(runs(), options(classes=["all"]))
    assert [line[1].words for line in made.rows] == list(NAMES)
    first = made.figure.panels[0]
    lines = {series.name: series.y for series in first.series}
    assert lines["training:robust"] == pytest.approx(TRAIN[:, 0])
    assert lines["test:robust"] == pytest.approx(JUDGED[:, 0])


def test_very_many_classes_are_points_of_one_panel():
    names = [f"c{k}" for k in range(20)]
    train, test = (np.random.default_rng(n).random((2, 20)) for n in (5, 6))
    looks = {"training:robust": train.tolist(), "test:pgd-10": test.tolist()}
    found = found_runs(({"recipe": "at"}, record(history(looks), names=names)))
    made = overfitting(found, options(classes=["all"]))
    assert len(made.rows) == 20
    (panel,) = made.figure.panels
    assert panel.kind == "points"
    assert panel.series[0].x == pytest.approx(100 * train[-1])
    assert panel.series[0].y == pytest.approx(test[-1])


def test_trained_and_judged_at_one_radius_there_is_no_part_of_the_radius():
    looks = {"training:robust": TRAIN.tolist(), "test:pgd-10": JUDGED.tolist()}
    found = found_runs(({"recipe": "at"}, record(history(looks))))
    made = overfitting(found, options())
    assert column(made, "of it: other radius", "at").rates == (0.0,)


def test_a_look_that_is_missing_leaves_its_own_cells_empty():
    looks = {"training:robust": TRAIN.tolist(), "test:pgd-10": JUDGED.tolist()}
    found = found_runs(({"recipe": "at"}, record(history(looks), **SMALL)))
    made = overfitting(found, options())
    assert column(made, "train minus test", "at").rates
    assert "eps 1/255" in column(made, "of it: other images", "at").hole
