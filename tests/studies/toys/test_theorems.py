"""Theorems 1 to 4 on CFA's binary task: what holds, what fails, and that the ruler can tell."""

import numpy as np
import pytest

from classwise.studies.toys.theorems import CLAIMS, Case, cases, slopes, try_claims
from classwise.studies.toys.two_classes import Adversary, TwoClasses

BY_WORDS = {claim.says: claim for claim in CLAIMS}
GROWS = BY_WORDS["w*(ε) grows on 0 ≤ ε ≤ η"]
GAIN = BY_WORDS["0 < ΔR₋ for every w, at ε ≥ η"]


@pytest.fixture(scope="module")
def tried():
    return {(one.claim.says, one.moves_all): one for one in try_claims(400)}


def test_what_holds_always_where_the_first_feature_stays(tried):
    failed = {says for (says, moves_all), one in tried.items() if one.failed and not moves_all}
    assert failed == {"0 < ΔR₋ for every w, at ε < η"}
    assert tried["0 < ΔR₋ for every w, at ε < η", False].failed == 200  # of 200


def test_what_fails_where_everything_is_moved(tried):
    failed = {says for (says, moves_all), one in tried.items() if one.failed and moves_all}
    assert failed == {GROWS.says, GAIN.says, "0 < ΔR₋ for every w, at ε < η"}
    sure = tried["the same, if p₋ ≥ (1 + ε)/2 as well", True]
    assert (sure.failed, sure.cases > 20) == (0, True)


def test_a_counter_example_breaks_what_it_is_said_to_break(tried):
    for (says, moves_all), one in tried.items():
        if one.example is not None:
            assert BY_WORDS[says].fails(one.example.case, moves_all) == one.example.words


def test_the_optimum_falls_where_the_first_feature_is_weak():
    case = Case(TwoClasses(26, 0.47, 0.58, 0.52), 0.1)
    best = [case.toy.best_robust(Adversary(eps, moves_all=True)) for eps in (0, 0.077, 0.1)]
    assert best == pytest.approx([0.2135, 0.0590, 0.0], abs=1e-4)
    assert GROWS.fails(case, True).startswith("w* falls from 0.213 at ε=0")
    assert GROWS.fails(case, False) == ""


def test_the_exact_condition_of_the_gain_agrees_with_differences():
    """R₋ at many weights, by the closed form alone: a fall there means that the claim fails."""
    seen = set()
    for case in cases(120, seed=5):
        for moves_all in (False, True):
            adversary = Adversary(case.eps, moves_all)
            slope = case.toy.slope(case.toy.p_hard, adversary)
            fails = bool(GAIN.fails(case, moves_all))
            # around every root, and over all weights at which anything happens
            near = [w * f for w in slope.roots for f in np.linspace(0.5, 2, 400)]
            weights = np.unique([*case.ws, *near])
            rates = case.toy.accuracy(weights, case.toy.p_hard, adversary)
            falls = bool((np.diff(rates) < -1e-15).any())
            assert not falls or fails, (case, moves_all)
            if fails and max(slope.roots, default=0) < 5:  # further out nothing is left to see
                assert falls, (case, moves_all)
                seen.add(moves_all)
    assert seen == {False, True}


def test_slopes_are_differences_of_the_closed_form():
    case = Case(TwoClasses(4, 0.3, 0.9, 0.6), 0.2)
    adversary, step = Adversary(0.2, moves_all=True), 1e-6
    up = case.toy.accuracy(case.ws + step, 0.6, adversary)
    down = case.toy.accuracy(case.ws - step, 0.6, adversary)
    assert slopes(case, 0.6, adversary) / 2 == pytest.approx((up - down) / (2 * step), abs=1e-8)


def test_drawn_cases_are_of_both_kinds_and_the_same_again():
    drawn = cases(50)
    assert drawn == cases(50)
    assert drawn != cases(50, seed=1)
    assert sum(case.eps >= case.toy.eta for case in drawn) == 25


def test_a_wrong_theorem_is_noticed():
    """The ruler of theorem 1 must see two classes in the wrong order."""

    class Swapped(TwoClasses):
        def accuracy(self, w, p, adversary=Adversary(0.0)):
            return super().accuracy(w, self.p_easy + self.p_hard - p, adversary)

    case = Case(Swapped(3, 0.3, 0.9, 0.6), 0.2)
    assert "the hard class is not worse" in CLAIMS[0].fails(case, False)
