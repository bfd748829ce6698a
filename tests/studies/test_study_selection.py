"""Which epoch a rule chooses, and what that epoch is worth where nobody chose."""

import numpy as np
import pytest
from trained_runs import column, found_runs, history, record

from classwise.studies.artefacts.selection import GAIN, ON_TEST, SelectionOptions, selection

VALID = [[0.8, 0.2, 0.5, 0.6], [0.5, 0.45, 0.5, 0.6], [0.4, 0.3, 0.3, 0.3]]  # 2.1, 2.05, 1.3
TEST = [[0.7, 0.1, 0.5, 0.5], [0.5, 0.3, 0.4, 0.5], [0.9, 0.31, 0.8, 0.7]]
BOTH = "overall + worst"


def options(**more):
    return SelectionOptions(kind="selection", title="Selection", **more)


def made(looks, wanted=None, epochs=None):
    found = found_runs(({"recipe": "at"}, record(history(looks, epochs))))
    return selection(found, wanted or options())


def test_each_rule_chooses_on_validation_and_is_judged_on_test():
    found = made({"valid:pgd-10": VALID, "test:pgd-10": TEST})
    for score, epoch in (("overall", 1), (BOTH, 2)):
        place = ("at", "validation", score)
        assert column(found, "epoch", *place).rates == (epoch,)
        assert column(found, "test overall", *place).rates == pytest.approx(
            [np.mean(TEST[epoch - 1])]
        )
        assert column(found, "test worst class", *place).rates == (min(TEST[epoch - 1]),)


def test_what_the_second_rule_brings():
    found = made({"valid:pgd-10": VALID, "test:pgd-10": TEST})
    worst = column(found, "test worst class", "at", "validation", GAIN)
    assert worst.rates == pytest.approx([0.3 - 0.1])
    overall = column(found, "test overall", "at", "validation", GAIN)
    assert overall.rates == pytest.approx([np.mean(TEST[1]) - np.mean(TEST[0])])
    assert column(found, "test worst class", "at", ON_TEST, GAIN).rates == (0.0,)


def test_the_papers_choice_stands_apart():
    found = made({"valid:pgd-10": VALID, "test:pgd-10": TEST})
    for score in ("overall", BOTH):
        assert column(found, "epoch", "at", ON_TEST, score).rates == (3,)
    assert found.figure.series[0].y == pytest.approx((0.1, 0.3, 0.31, 0.31))


def test_averages_are_chosen_by_their_own_validation():
    looks = {"valid:pgd-10": VALID, "test:pgd-10": TEST}
    looks |= {"valid:pgd-10@fawa": VALID[::-1], "test:pgd-10@fawa": TEST}
    found = made(looks, options(averages=["", "fawa"]))
    assert column(found, "epoch", "at, fawa", "validation", BOTH).rates == (2,)
    assert column(found, "epoch", "at, fawa", "validation", "overall").rates == (3,)
    assert column(found, "epoch", "at", "validation", "overall").rates == (1,)


def test_only_epochs_that_were_judged_can_be_chosen():
    found = made({"valid:pgd-10": VALID, "test:pgd-10": {2: TEST[1], 3: TEST[2]}}, epochs=3)
    assert column(found, "epoch", "at", "validation", "overall").rates == (2,)


def test_only_epochs_of_the_window_can_be_chosen():
    found = made({"valid:pgd-10": VALID, "test:pgd-10": TEST}, options(within=[0.5, 1.0]))
    assert column(found, "epoch", "at", "validation", "overall").rates == (2,)


def test_equal_scores_take_the_first_epoch():
    same = [[0.5, 0.5, 0.5, 0.5]] * 3
    found = made({"valid:pgd-10": same, "test:pgd-10": TEST})
    assert column(found, "epoch", "at", "validation", BOTH).rates == (1,)


def test_a_run_that_nobody_watched_is_a_hole():
    found = made({"valid:pgd-10": VALID})
    assert not any(cell.rates for line in found.rows for cell in line)
    assert all(cell.hole for line in found.rows for cell in line[4:])
