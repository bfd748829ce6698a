"""Runs that differ in one axis: their orders of the classes, and the rule that follows."""

import effect_scenes
import numpy as np
import pytest
from found_scenes import found as found_of
from refusals import refused
from scipy import stats
from trained_runs import column, condition, found_runs, record, row

from classwise.studies.artefacts.agreement import EVERY, agreement
from classwise.studies.cells import settings_of
from classwise.studies.counted import equal_rates_p_value
from classwise.studies.orders import AgreementOptions, Compared
from classwise.studies.pairing import Predictions

NAMES = tuple("abcdef")
SPREAD = [40, 80, 150, 210, 290, 360]  # of 400
CLOSE = [48, 84, 140, 220, 300, 350]


def audited(hits, size=400, names=NAMES):
    return record((), condition("pgd-20", hits, size, names), names=names)


def options(**more):
    wanted = {"axis": "model", "conditions": ["pgd-20"], "draws": 200, **more}
    return AgreementOptions(kind="agreement", title="Agreement", **wanted)


def of_models(**hits):
    pairs = [({"recipe": "at", "model": model}, audited(one)) for model, one in hits.items()]
    return agreement(found_runs(*pairs), options())


def test_rho_is_spearmans_and_classes_are_described():
    turned = SPREAD[::-1]
    made = of_models(cnn=SPREAD, vgg=CLOSE, lenet=turned)
    lowest = column(made, "lowest ρ with another", "at", "pgd-20", "cnn")
    assert lowest.rates == pytest.approx([stats.spearmanr(SPREAD, turned).statistic])
    spread = column(made, "class std", "at", "pgd-20", "vgg")
    assert spread.rates == pytest.approx([np.std(np.array(CLOSE) / 400)])
    assert column(made, "worst class", "at", "pgd-20", "lenet").words == "f"
    (panel,) = made.figure.panels
    assert panel.series[0].y == pytest.approx((1.0, 1.0, -1.0))


class TestVerdict:
    def words(self, made):
        return column(made, "verdict", "at", "pgd-20", EVERY).words

    def test_the_same_order_clears_the_axis(self):
        words = self.words(of_models(cnn=SPREAD, vgg=CLOSE))
        assert words.startswith("The same order of the classes in all 2 runs")
        assert "(model) has little to do with" in words

    def test_another_order_makes_it_a_possible_cause(self):
        words = self.words(of_models(cnn=SPREAD, vgg=SPREAD[::-1]))
        assert words.startswith("Not the same order")
        assert "(model) may be one cause" in words

    def test_few_images_decide_nothing(self):
        pairs = [({"recipe": "at", "model": m}, audited([1, 2, 3, 5, 7, 9], 10)) for m in "xy"]
        assert self.words(agreement(found_runs(*pairs), options())).startswith("Undecided")

    def test_seeds_that_disagree_as_much_leave_it_undecided(self):
        pairs = [
            ({"recipe": "at", "model": model, "seed": seed}, audited(hits))
            for model, seed, hits in (
                *(("cnn", "0", SPREAD), ("cnn", "1", SPREAD[::-1])),
                *(("vgg", "0", SPREAD[::-1]), ("vgg", "1", SPREAD)),
            )
        ]
        made = agreement(found_runs(*pairs), options())
        assert self.words(made).startswith("Undecided, since runs that differ in their seed alone")
        between = column(made, "ρ between seeds alone", "at", "pgd-20", "cnn")
        assert between.words == "-1.00"

    def test_a_seed_with_another_order_decides_before_one_with_the_same(self):
        pairs = [
            ({"recipe": "at", "model": model, "seed": seed}, audited(hits))
            for model, seed, hits in (
                *(("cnn", "0", SPREAD), ("cnn", "1", SPREAD)),
                *(("vgg", "0", CLOSE), ("vgg", "1", SPREAD[::-1])),
            )
        ]
        words = self.words(agreement(found_runs(*pairs), options()))
        assert "Not the same order" in words
        assert "Of 2 seeds 1 say the same order, 1 another one." in words

    def test_another_order_in_every_seed_is_enough_where_seeds_agree(self):
        pairs = [
            ({"recipe": "at", "model": model, "seed": seed}, audited(hits))
            for model, hits in (("cnn", SPREAD), ("vgg", SPREAD[::-1]))
            for seed in "01"
        ]
        words = self.words(agreement(found_runs(*pairs), options()))
        assert words.startswith("Not the same order")
        assert "Of 2 seeds 0 say the same order, 2 another one." in words


def test_data_with_other_classes_have_no_order_to_compare():
    pairs = [
        ({"data": "x"}, audited(SPREAD)),
        ({"data": "y"}, audited([390] * 6, names=tuple("uvwxyz"))),
    ]
    made = agreement(found_runs(*pairs), options(axis="data"))
    verdict = next(line for line in made.rows if line[2].words == EVERY)[-1].words
    assert "no order to compare" in verdict
    assert verdict.endswith("Classes differ beyond chance in 1 of 2.")
    chances = [line[5].words for line in made.rows if line[2].words in "xy"]
    assert chances == ["below 0.0001", "1"]


def test_axes_that_change_along_do_not_divide_the_runs():
    pairs = [
        ({"model": "cnn", "lr": "0.1"}, audited(SPREAD)),
        ({"model": "vgg", "lr": "0.01"}, audited(CLOSE)),
    ]
    divided = agreement(found_runs(*pairs), options())
    assert "one value of model alone" in divided.rows[-1][-1].words
    whole = agreement(found_runs(*pairs), options(along=["lr"]))
    assert whole.rows[-1][-1].words.startswith("The same order")


def test_a_run_whose_classes_are_equal_decides_nothing_and_breaks_nothing():
    pairs = [
        ({"recipe": "at", "model": model, "seed": seed}, audited(hits))
        for model, seed, hits in (
            *(("cnn", "0", SPREAD), ("vgg", "0", SPREAD[::-1])),
            *(("cnn", "1", SPREAD), ("vgg", "1", [0] * 6)),
        )
    ]
    made = agreement(found_runs(*pairs), options())
    lowest = column(made, "lowest ρ with another", "at", "pgd-20", "vgg")
    assert lowest.rates == pytest.approx([-1])
    assert "no order" in lowest.hole
    # of several seeds the largest chance
    assert column(made, "chance if classes were equal", "at", "pgd-20", "vgg").words == "1"


def test_whether_classes_differ_is_pearsons_chi_square():
    hits, wrong = [40, 47, 52], [60, 53, 48]
    report = condition("pgd-20", hits, names="abc")
    expected = [(139 / 3, 161 / 3)] * 3
    square = sum(
        (right - e) ** 2 / e + (missed - f) ** 2 / f
        for right, missed, (e, f) in zip(hits, wrong, expected, strict=True)
    )
    assert equal_rates_p_value(report) == pytest.approx(stats.chi2.sf(square, 2))
    assert equal_rates_p_value(condition("x", [0, 0, 0], names="abc")) == 1


def test_holes_are_kept_and_the_others_compared():
    found = found_runs(
        ({"recipe": "at", "model": "cnn"}, audited(SPREAD)),
        ({"recipe": "at", "model": "vgg"}, "not run yet"),
        ({"recipe": "at", "model": "lenet"}, audited(CLOSE)),
    )
    made = agreement(found, options())
    empty = row(made, "at", "pgd-20", "vgg")
    assert {empty[place].hole for place in (3, 4, 6)} == {"not run yet"}
    assert empty[5].hole == "not audited"
    assert column(made, "verdict", "at", "pgd-20", EVERY).words.startswith("The same order")
    alone = agreement(found_runs((found.runs[0].labels, found.runs[0].run)), options())
    assert "one value of model alone" in alone.rows[-1][-1].words


def test_an_axis_that_is_not_there_is_refused():
    with refused("model"):
        agreement(found_runs(({"model": "cnn"}, "not run yet")), options(axis="modle"))


class TestPairedByImages:
    """Runs that were asked about the same images have them drawn together."""

    def ranks(self, tmp_path, data=("d", "d")):
        right, runs = effect_scenes.right_of([0.3, 0.5, 0.6], 60, 0), []
        for model, where in zip(("cnn", "vgg"), data, strict=True):
            folder = tmp_path / model
            effect_scenes.write(folder, right, data=where)
            labels = {"recipe": "at", "model": model, "seed": "0"}
            runs.append(effect_scenes.found_run(folder, labels))
        found = found_of(*runs)
        (setting,) = settings_of(found, but=("model",))
        compared = Compared.of(setting, "pgd-20", options(), Predictions())
        return compared.by_seed["0"].ranks

    def test_equal_verdicts_agree_better_than_on_other_data(self, tmp_path):
        together, apart = self.ranks(tmp_path / "one"), self.ranks(tmp_path / "two", ("d", "e"))
        assert together.paired
        assert not apart.paired
        lows = [ranks.measures["spearman"].low[0, 1] for ranks in (together, apart)]
        assert lows[0] > 0.8 > lows[1]
