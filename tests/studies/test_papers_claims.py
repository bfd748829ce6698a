"""The file of claims: whole, of one spelling, and about studies and runs that there are."""

from importlib.resources import files

import pytest

from classwise.errors import ClasswiseError
from classwise.studies.papers.cells import PaperColumn, paper_cell
from classwise.studies.papers.claims import Term, claims, read_claim
from classwise.studies.papers.differences import COLUMNS, difference_text
from classwise.studies.study import study_names

CLAIMS = claims()
BY_ID = {claim.id: claim for claim in CLAIMS}
# Numbers that the papers' texts state outside their tables, typed from them.
IN_TEXT = {
    "ahn": (8, 20, 15, 6, 5, 80, 0, 19, 13),
    "wei": (53.2, 23.5, 52.6, 28.1, 10, 1, 1),
    "medi": (18,),
    "amerehi": (25.24, 54.19, 22.99, 65.23, 27.93, 14.42, 17.03, 6.97, 53.5, 5.73, 7.87, 2.79),
}


def test_every_claim_has_an_id_of_its_own_that_begins_with_its_paper():
    assert len(BY_ID) == len(CLAIMS)
    assert all(claim.id.startswith(f"{claim.paper}-") for claim in CLAIMS)
    assert {claim.paper for claim in CLAIMS} == {"ahn", "wei", "benz", "medi", "amerehi"}


@pytest.mark.parametrize("paper", IN_TEXT)
def test_every_number_of_the_texts_is_a_claim(paper):
    own = [claim for claim in CLAIMS if claim.paper == paper and not claim.from_table]
    stated = [abs(claim.value) for claim in own if claim.value is not None]
    for value in IN_TEXT[paper]:
        assert value in stated, value


def test_the_differences_are_those_of_the_rule():
    there = files("classwise.studies.papers").joinpath("differences.csv").read_text()
    assert there == difference_text(), (
        "write it anew: python -m classwise.studies.papers.differences > differences.csv"
    )


def test_a_difference_is_that_of_its_two_cells():
    claim = BY_ID["wei-t1-trades-cfa-over-trades-best-autoattack-worst"]
    column = PaperColumn("worst", "autoattack", "best")
    left, right = (paper_cell("wei", "1", row, column) for row in ("TRADES + CFA", "TRADES"))
    assert claim.value == pytest.approx(left.value - right.value)
    assert (claim.value, claim.sign) == (4.8, "+")
    none = BY_ID["ahn-t1-pgd-cfa-over-pgd-last-pgd-20-worst"]
    assert (none.value, none.sign, none.bound) == (0, "~", 1)


def test_what_speaks_against_a_cell_speaks_against_its_differences():
    doubtful = BY_ID["medi-t1-trades-ema-over-trades-cifar100-last-pgd-10-average"].doubtful
    assert "outlier" in doubtful
    small = BY_ID["wei-t1-at-ema-over-at-best-clean-average"]
    assert "standard error" in small.doubtful  # 82.3 ± 0.8 and 81.9 ± 0.3


def test_a_claim_that_repeats_another_names_it():
    for claim in CLAIMS:
        if claim.kind == "same":
            other = BY_ID[claim.other]
            assert other.kind != "same"
            if claim.value is not None:
                assert claim.value == pytest.approx(other.value, abs=0.05)


def test_every_study_that_is_named_is_there():
    known = set(study_names())
    if not known:
        pytest.skip("no study files yet")
    named = {study for claim in CLAIMS for study in claim.studies}
    assert named <= known, sorted(named - known)


def line(**said):
    plain = dict.fromkeys(COLUMNS, "")
    return {**plain, "id": "wei-x", "paper": "wei", "kind": "difference", **said}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"paper": "wie"}, "wie"),
        ({"kind": "diff"}, "diff"),
        ({"sign": "<"}, "bound"),
        ({"sign": "+", "bound": "3"}, "bound"),
        ({"study": "x", "left": "row=a"}, "which way"),
        ({"study": "x", "sign": "+"}, "which runs"),
        ({"left": "row"}, "axis=value"),
    ],
)
def test_a_line_that_makes_no_sense_is_refused(said, words):
    with pytest.raises(ClasswiseError, match=words):
        read_claim(line(**said))


def test_terms_and_sums():
    claim = read_claim(line(study="x", sign="+", left="row=a&row=b;condition=clean|row=c"))
    assert [[str(term) for term in one] for one in claim.left] == [["a", "b"], ["c"]]
    assert claim.left[0][1] == Term((("row", "b"),), condition="clean")
