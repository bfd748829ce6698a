"""The papers' numbers: read again here where it is easy to read them wrong."""

import pytest

from classwise.errors import ClasswiseError
from classwise.methods import METHODS
from classwise.papers import PAPERS
from classwise.studies.papers import paper_rows
from classwise.studies.papers.cells import PaperColumn, paper_cell, paper_cells


@pytest.mark.parametrize(
    ("author", "methods"), [("Wei", 5), ("Benz", 5), ("Medi", 1), ("Amerehi", 1)]
)
def test_a_method_and_a_study_of_one_paper_name_the_same_year(author, methods):
    told = [method.paper for method in METHODS.values() if author in method.paper]
    assert len(told) == methods
    assert all(words.endswith(PAPERS[author.lower()].source) for words in told)


# Typed from the papers: the first and the last row of each table, and cells that are easy to swap.
PRINTED = [
    ("ahn", "1", "CLEAN", "spread", "clean", "last", "", 12.7),
    ("ahn", "1", "TRADES + FRL", "spread", "pgd-20", "last", "", 13.9),
    ("ahn", "1", "TRADES", "spread", "pgd-20", "last", "", 16.36),
    ("wei", "1", "AT", "average", "clean", "best", "", 82.3),
    ("wei", "1", "FRL + EMA", "worst", "autoattack", "last", "", 24.5),
    ("wei", "2", "TRADES + CCM + CCR", "worst", "autoattack", "best", "", 23.8),
    ("wei", "3", "FAT + FAWA", "average", "autoattack", "best", "", 48.5),
    ("medi", "1", "FAIR-TAT", "worst", "pgd-10", "last", "cifar10", 19.7),
    ("medi", "1", "FAIR-TAT + TRADES", "tail", "pgd-10", "last", "cifar100", 8.9),
    ("medi", "2", "WAT + TRADES", "worst", "square", "last", "cifar10", 26.2),
    ("medi", "3", "FAIR-TAT + FAT + CFA", "worst", "fog", "last", "", 15),
    ("medi", "4", "TRADES + EMA", "worst", "fog", "last", "", 47),
    ("amerehi", "1", "Adv+", "error", "corruptions", "last", "", 66.43),
    ("amerehi", "2", "Adv", "spread", "real", "last", "", 15.24),
]


@pytest.mark.parametrize("case", PRINTED, ids=lambda case: "-".join(case[:5]))
def test_cells_are_as_printed(case):
    *place, value = case
    found = paper_cell(*place[:3], PaperColumn(*place[3:]))
    assert found is not None
    assert found.value == value


def test_a_cell_that_is_not_there_and_a_paper_that_is_not_there():
    assert paper_cell("wei", "1", "AT", PaperColumn("spread")) is None
    assert paper_cell("medi", "1", "AT", PaperColumn("average")) is None  # of which data?
    assert paper_cell("wei", "1", "AT", PaperColumn("average", data="cifar100")) is None
    with pytest.raises(ClasswiseError, match="wie"):
        paper_cell("wie", "1", "AT", PaperColumn("average"))


def test_the_rows_are_those_that_train():
    """So that a run finds its cell by the name of its row and data."""
    known = {(row.paper, row.row, row.data) for row in paper_rows()}
    assert {(place.paper, place.row, place.column.data) for place in paper_cells()} <= known


def test_what_is_not_to_be_relied_on_says_why():
    marked = {place: cell for place, cell in paper_cells().items() if cell.doubtful}
    rows = {(place.paper, place.table, place.row) for place in marked}
    repeated = {row for paper, table, row in rows if (paper, table) == ("medi", "2")}
    assert repeated == {
        *("AT + EMA", "FAIR-TAT + EMA", "TRADES + EMA", "FAIR-TAT + TRADES + EMA"),
        *("FAT + EMA", "FAIR-TAT + FAT + EMA"),
    }
    lower = [place for place in marked if (place.paper, place.table) == ("medi", "4")]
    assert len(lower) == 7 * 9
    outlier = paper_cell(
        "medi", "1", "TRADES + EMA", PaperColumn("average", "pgd-10", "last", "cifar100")
    )
    assert outlier is not None
    assert "outlier" in outlier.doubtful
    assert ("medi", "1", "Clean Training") in rows
    assert ("medi", "1", "FRL") in rows
    assert not any(paper in ("ahn", "wei") for paper, _, _ in rows)
