"""The artefact of CFA's binary task: the closed forms, and a word on whose parameters they have."""

import pytest
from pydantic import ValidationError

from classwise.studies.artefacts.toy_cfa import ToyCfaOptions, toy_cfa
from classwise.studies.found import Found


class Facts:
    title, paper, source = "CFA's binary task", "wei", "figure 1"


FOUND = Found(Facts(), "smoke", ())


def test_figure_1_has_the_shape_that_the_paper_describes():
    made = toy_cfa(FOUND, ToyCfaOptions(title="Figure 1"))
    points, lines = made.figure.panels
    assert {x for one in points.series for x in one.x} == {-1.0, 1.0}
    by_name = {one.name: one for one in lines.series}
    weights = by_name["clean, class −1 (hard)"].x
    hard, easy = (by_name[f"clean, class {name}"].y for name in ("−1 (hard)", "+1 (easy)"))
    assert max(hard) == pytest.approx(0.726, abs=1e-3)
    assert weights[hard.index(max(hard))] == pytest.approx(1.059, abs=0.06)
    assert weights[easy.index(max(easy))] == pytest.approx(2.747, abs=0.06)
    for name, limit in (("+1 (easy)", 0.9), ("−1 (hard)", 0.7)):
        robust = by_name[f"robust, class {name}"].y
        assert list(robust) == sorted(robust)
        assert robust[-1] == pytest.approx(limit, abs=1e-3)
    assert by_name["clean, class −1 (hard)"].dashed


def test_it_says_that_the_parameters_are_not_the_papers():
    made = toy_cfa(FOUND, ToyCfaOptions(title="Figure 1", note="more"))
    assert any("no other parameter" in note for note in made.notes)
    assert "d = 1, η = 0.4, p₊ = 0.9, p₋ = 0.7; robust: ε = 0.8, κ = 0." in made.notes
    assert made.notes[-1] == "more"


def test_the_table_of_theorems():
    options = ToyCfaOptions(title="Theorems", shows="theorems", draws=60)
    made = toy_cfa(FOUND, options)
    second = made.rows[1]
    assert second[0].words == "Theorem 2"
    assert second[2].words == "holds in all 60"
    assert second[3].words.startswith("fails in ")
    assert "w* falls from" in second[3].words
    assert made == toy_cfa(FOUND, options)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"p_easy": 0.6, "p_hard": 0.7}, "p_hard < p_easy"),
        ({"eta": 0.7}, "eta < 0.5"),
        ({"where": {"seed": "0"}}, "reads no runs"),
        ({"ets": 0.4}, "ets"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong, words):
    with pytest.raises(ValidationError, match=words):
        ToyCfaOptions(title="Figure 1", **wrong)
