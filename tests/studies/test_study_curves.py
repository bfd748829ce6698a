"""Classes over epochs: the looks that are meant, the lines, and what is said of them."""

import numpy as np
import pytest
from refusals import refused
from trained_runs import NAMES, column, found_runs, history, record, row

from classwise.errors import ClasswiseError
from classwise.studies.artefacts.curves import CurvesOptions, curves
from classwise.studies.artefacts.vulnerable import VulnerableOptions, vulnerable
from classwise.studies.epochs import Window
from classwise.studies.found import FoundRun, Hole
from classwise.studies.looks import over_epochs, parse_look

ROWS = np.random.default_rng(0).random((6, 4)).round(3)


def options(**more):
    return CurvesOptions(kind="curves", title="Curves", **{"of": ["test:robust"], **more})


class TestLooks:
    def seen(self, text, looks, **config):
        run = FoundRun({}, record(history(looks, settings=config.pop("settings", None)), **config))
        return over_epochs(run, parse_look(text))

    def test_a_look_is_found_by_its_name_however_its_eps_is_spelt(self):
        found = self.seen("test:pgd-10(eps=8/255)", {"test:pgd-10(eps=8/255)": ROWS.tolist()})
        assert found.rates.tolist() == ROWS.tolist()
        assert found.epochs == (1, 2, 3, 4, 5, 6)
        assert found.class_names == NAMES

    def test_robust_is_the_attack_at_the_radius_of_judgement(self):
        looks = {
            "test:clean": (ROWS + 1).tolist(),
            "test:pgd-10": ROWS.tolist(),
            "test:pgd-10(eps=1/255)": (ROWS + 2).tolist(),
        }
        config = {"eps": 1 / 255, "judge_eps": 8 / 255}
        assert self.seen("test:robust", looks, **config).rates.tolist() == ROWS.tolist()
        own = self.seen("test:own", looks, **config)
        assert own.rates.tolist() == (ROWS + 2).tolist()
        assert own.said == "test:pgd-10(eps=1/255)"

    def test_several_attacks_at_one_radius_are_not_chosen_from(self):
        looks = {"test:pgd-10": ROWS.tolist(), "test:fgsm": ROWS.tolist()}
        with pytest.raises(Hole, match="2 attacks at eps 8/255"):
            self.seen("test:robust", looks)

    def test_validation_is_judged_by_the_attack_that_chooses(self):
        looks = {"valid:pgd-10": ROWS.tolist(), "valid:pgd-20": (ROWS + 1).tolist()}
        assert self.seen("valid:robust", looks).rates.tolist() == ROWS.tolist()

    def test_averages_splits_and_what_was_counted_while_training_are_told_apart(self):
        looks = {
            name: (ROWS + n).tolist()
            for n, name in enumerate(
                ["test:pgd-10", "test:pgd-10@fawa", "train:pgd-10", "training:robust"]
            )
        }
        for n, text in enumerate(
            ["test:robust", "test:robust@fawa", "train:robust", "training:robust"]
        ):
            assert self.seen(text, looks).rates.tolist() == (ROWS + n).tolist()

    def test_a_corruption_is_no_attack(self):
        looks = {"test:corruption:fog-3": ROWS.tolist(), "test:pgd-10": (ROWS + 1).tolist()}
        assert self.seen("test:robust", looks).rates[0, 0] == ROWS[0, 0] + 1

    def test_settings_have_a_number_for_each_class(self):
        found = self.seen("settings:margin", {}, settings={"margin": ROWS.tolist()})
        assert found.rates.tolist() == ROWS.tolist()
        assert found.overall == pytest.approx(ROWS.mean(1))

    @pytest.mark.parametrize("text", ["test:robust", "settings:margin", "train:clean"])
    def test_what_is_not_on_record_is_a_hole(self, text):
        with pytest.raises(Hole):
            self.seen(text, {"valid:pgd-10": ROWS.tolist()})

    @pytest.mark.parametrize("text", ["test", "test:", "tset:clean", "test:clean@", "test:pdg-3"])
    def test_what_is_no_look_is_refused(self, text):
        with pytest.raises(ClasswiseError):
            parse_look(text)

    def test_classes_without_samples_take_no_part_in_the_worst(self):
        found = self.seen("valid:robust", {"valid:pgd-10": [[None, 0.2, 0.3, 0.4], [None] * 4]})
        assert found.worst.tolist()[0] == 0.2
        assert np.isnan(found.worst[1])


@pytest.mark.parametrize(
    ("window", "length", "least", "epochs"),
    [
        ((0.5, 0.6), 200, 1, (101, 120)),
        ((0.9, 1.0), 200, 1, (181, 200)),
        ((0.75, 0.85), 200, 1, (151, 170)),
        ((0.5, 0.6), 1, 1, (1, 1)),
        ((0.5, 0.6), 12, 2, (7, 8)),
        ((0.9, 1.0), 12, 2, (11, 12)),
        ((0.9, 1.0), 2, 2, (1, 2)),
        ((0.0, 0.29), 100, 1, (1, 29)),  # 0.29·100 is below 29 in floating point
    ],
)
def test_windows_are_fractions_of_the_run(window, length, least, epochs):
    found = Window(*window).of(length, least)
    assert (found[0], found[-1]) == epochs


def test_lines_are_means_over_seeds():
    other = ROWS[::-1]
    found = found_runs(
        ({"recipe": "at", "seed": "0"}, record(history({"test:pgd-10": ROWS.tolist()}))),
        ({"recipe": "at", "seed": "1"}, record(history({"test:pgd-10": other.tolist()}))),
    )
    made = curves(found, options(classes=["cat", "worst", "overall"]))
    cat, worst, overall = made.figure.panels
    (series,) = cat.series
    assert cat.title == "cat"
    assert series.y == pytest.approx((ROWS[:, 2] + other[:, 2]) / 2)
    assert series.low == pytest.approx(np.minimum(ROWS[:, 2], other[:, 2]))
    assert worst.series[0].y == pytest.approx((ROWS.min(1) + other.min(1)) / 2)
    assert overall.series[0].y == pytest.approx((ROWS.mean(1) + other.mean(1)) / 2)
    last, highest, where, swing = row(made, "cat, at")[1:]
    assert last.rates == (ROWS[-1, 2], other[-1, 2])
    top = int(np.argmax(ROWS[:, 2] + other[:, 2]))
    assert (highest.rates, where.words) == ((ROWS[top, 2], other[top, 2]), str(top + 1))
    both = [np.abs(np.diff(one[:, 2])).mean() for one in (ROWS, other)]
    assert swing.rates == pytest.approx(both)


def test_panels_and_lines_follow_the_options():
    pairs = [
        ({"recipe": recipe, "eps": eps}, record(history({"train:clean": ROWS.tolist()})))
        for recipe in ("at", "trades")
        for eps in ("4/255", "8/255")
    ]
    wanted = {"of": ["train:clean"], "classes": ["dog"]}
    made = curves(found_runs(*pairs), options(panels=["recipe"], **wanted))
    assert [panel.title for panel in made.figure.panels] == ["at", "trades"]
    names = [series.name for series in made.figure.panels[0].series]
    assert names == ["at, eps 4/255, dog", "at, eps 8/255, dog"]
    one = curves(found_runs(*pairs), options(where={"eps": "4/255"}, **wanted))
    assert [series.name for series in one.figure.series] == ["at", "trades"]
    assert one.figure.title == "dog"


def test_every_class_has_a_line_of_its_settings():
    margins = (ROWS * 0.05).tolist()
    found = found_runs(({"recipe": "at+ccm"}, record(history({}, settings={"margin": margins}))))
    made = curves(found, options(of=["settings:margin"], classes=["all"], panels=[]))
    assert [series.name for series in made.figure.series] == [f"at+ccm, {name}" for name in NAMES]
    assert made.figure.unit == ""
    assert column(made, "last", "at+ccm, bee").rates == (margins[-1][1],)
    assert column(made, "last", "at+ccm, bee").unit == ""


def test_holes_stay_holes():
    found = found_runs(
        ({"recipe": "at", "seed": "0"}, record(history({"test:pgd-10": ROWS.tolist()}))),
        ({"recipe": "at", "seed": "1"}, "failed: no memory"),
        ({"recipe": "trades", "seed": "0"}, "not run yet"),
    )
    made = curves(found, options(classes=["ant"]))
    half = column(made, "last", "ant, at")
    assert half.rates == (ROWS[-1, 0],)
    assert "1 of 2 seeds" in half.hole
    none = row(made, "ant, trades")
    assert not any(cell.rates for cell in none)
    assert none[1].hole == "not run yet"
    assert any("2 of 3 runs are missing" in note for note in made.notes)


def test_a_class_that_is_not_there_is_refused_by_name():
    found = found_runs(({}, record(history({"test:pgd-10": ROWS.tolist()}))))
    with refused("bee"):
        curves(found, options(classes=["beee"]))


def test_settings_and_rates_share_no_panel():
    with pytest.raises(ValueError, match="look"):
        options(of=["test:robust", "settings:margin"])


class TestVulnerable:
    def test_changes_shares_and_when_it_settled(self):
        rows = [[0.1, 0.2, 0.9, 0.9], [0.3, 0.2, 0.9, 0.9], [0.3, 0.2, 0.9, 0.9]]
        found = found_runs(({"recipe": "at"}, record(history({"test:pgd-10": rows}))))
        wanted = VulnerableOptions(kind="vulnerable", title="Vulnerable", of=["test:robust"])
        made = vulnerable(found, wanted)
        cells = dict(zip(made.head, row(made, "at", "0"), strict=True))
        assert cells["changes"].rates == (1,)
        assert cells["worst at the end"].words == "bee"
        assert cells["since epoch"].rates == (2,)
        assert cells["looks at which it was the worst"].rates == pytest.approx((2 / 3,))
        points = {series.name: (series.x, series.y) for series in made.figure.series}
        assert points == {"ant": ((1.0,), (0.1,)), "bee": ((2.0, 3.0), (0.2, 0.2))}

    def test_a_run_without_looks_is_a_hole(self):
        wanted = VulnerableOptions(kind="vulnerable", title="Vulnerable", of=["test:robust"])
        made = vulnerable(found_runs(({"recipe": "at"}, "not run yet")), wanted)
        assert [cell.hole for cell in made.rows[0][2:]] == ["not run yet"] * 5
