"""Every study that is built in, run at its smallest scale: what the papers' artefacts show.

All of them share one folder and one process, as the runs that they have in common do. The numbers
are of made-up images and mean nothing; rows, columns, classes and holes are what is looked at.
"""

from dataclasses import dataclass

import pytest
import torch

from classwise.data.cifar import NAMES_10
from classwise.data.madeup import GROUPS_100
from classwise.studies.artefact import Artefact
from classwise.studies.finding import Reader
from classwise.studies.found import Found, Hole
from classwise.studies.grid import run_job
from classwise.studies.making import PlannedStudy, make_artefacts, plan_studies, work_of
from classwise.studies.papers import paper_rows
from classwise.studies.papers.claims import claims
from classwise.studies.printed import printed_cells
from classwise.studies.runs_folder import RunsFolder
from classwise.studies.study import load_study, study_names

# Why a cell may be empty although every run is there and was audited as its study asks: two epochs
# of made-up images open no gate and leave all classes at 0 %, plain training counts no attack, and
# made-up images have neither reassessed labels nor factors.
GATE = "its average never began"
TWIN = "(gate: share)"  # rows whose gate can open in short runs, beside those of the papers
EXPECTED = (
    GATE,
    "its gate stayed shut",
    "methods missing: PGD + CFA",
    "methods missing: TRADES + CFA",
    "training:robust is not on record",
    "no number",
    "the study has no such run",
    "all are equal",
    "all classes are equal",
    "all classes of a run are equal",
    "no reassessed labels",
    "no superclasses",
    "one seed alone",
    "no pair to compare",
    "the classes differ with data",
)
NOT_RUN = ("wei-tiny",)  # as where its data cannot be had
NO_NUMBERS = (*NOT_RUN, "amerehi-imagenet-x")

# Hypotheses on confusion for which the artefact of similarity has other columns, or none.
WITHOUT_CELL = {f"benz-3.2-{number}" for number in (7, 8, 9, 10)}
STUDIES = {
    "ahn": "table1 eps dynamics superclasses both-views",
    "wei": "toy margins beta fluctuation table1 table2 table3 floor lambda2 cost classes tiny",
    "benz": "gaps universality training confusion features remedies corruptions",
    "medi": "fps toy table1 table2 xcit corruptions targets",
    "amerehi": "tables classes corruptions imagenet-x logits",
}


@dataclass(frozen=True)
class Tried:
    """A study whose runs are all there."""

    found: Found
    artefacts: dict[str, Artefact]

    def rows(self, name: str) -> list[str]:
        """The first words of every row of an artefact."""
        return [row[0].words for row in self.artefacts[name].rows]


@pytest.fixture(scope="session")
def tried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tried]:
    """All studies, in one folder."""
    folder, threads = tmp_path_factory.mktemp("studies"), torch.get_num_threads()
    planned = plan_studies(study_names(), "smoke")
    try:
        for job in work_of(planned, RunsFolder.of(folder)).jobs.values():
            run_job(job)
    finally:
        torch.set_num_threads(threads)
    reader = Reader(RunsFolder.of(folder))
    return {one.study.name: read(one, reader) for one in planned}


def read(planned: PlannedStudy, reader: Reader) -> Tried:
    found = reader.found(planned.study, "smoke", planned.runs)
    return Tried(found, {one.name: one for one in make_artefacts(found)})


def cells(artefact: Artefact):
    return [cell for row in artefact.rows for cell in row]


def row_names(paper: str, table: str, data: str = "") -> list[str]:
    """The rows of a paper's table, as papers/rows.csv has them."""
    rows = [row for row in paper_rows() if row.paper == paper and not row.variant]
    return [row.row for row in rows if table in row.table.split(",") and data in ("", row.data)]


class TestEveryStudy:
    def test_all_are_there(self):
        """By name, since claims and pages name them."""
        assert study_names() == sorted(
            f"{paper}-{name}" for paper, names in STUDIES.items() for name in names.split()
        )

    @pytest.mark.parametrize("name", study_names())
    def test_every_run_is_there_and_every_artefact_has_numbers(self, tried, name):
        found, made = tried[name].found, tried[name].artefacts
        missing = {run.why for run in found.runs if run.run is None}
        assert missing == ({"not run: data unobtainable"} if name in NOT_RUN else set())
        assert len(made) == len(load_study(name).artefacts) > 0
        for artefact in made.values():
            assert artefact.rows or name in NO_NUMBERS
            assert any("smoke" in note for note in artefact.notes) or not found.runs
            if name in NO_NUMBERS:
                continue
            holes = {cell.hole for cell in cells(artefact)}
            left = {hole for hole in holes if hole and not any(one in hole for one in EXPECTED)}
            assert left == set(), artefact.title
            some = any(cell.rates or cell.words for row in artefact.rows for cell in row[1:])
            assert some or all(GATE in hole for hole in holes - {""}), artefact.title


class TestRowsAndColumns:
    """Against what the papers' tables have."""

    def test_ahn_table_1(self, tried):
        table = tried["ahn-table1"].artefacts["table-1"]
        nine = row_names("ahn", "1")
        assert len(nine) == 9
        shared = ["PGD + CFA (gate: share)", "TRADES + CFA (gate: share)"]
        assert tried["ahn-table1"].rows("table-1") == [*nine, *shared]
        measures = ("average", "worst", "best", "spread")
        assert table.head[1:] == tuple(f"{m}, {c}" for c in ("clean", "pgd-20") for m in measures)
        by_row = dict(zip(tried["ahn-table1"].rows("table-1"), table.rows, strict=True))
        assert [cell.paper for cell in by_row["PGD"][1:]] == [
            *(49.6, 1.0, 87.0, 21.6, 22.3, 0.0, 65.0, 17.5),
        ]

    @pytest.mark.parametrize(("study", "table"), [("wei-table2", "2"), ("wei-table3", "3")])
    def test_wei_tables_2_and_3_have_the_papers_number_beside_every_row(self, tried, study, table):
        made = tried[study].artefacts[f"table-{table}"]
        ours = [row for row in made.rows if "gate: share" not in row[0].words]
        named = set(tried[study].rows(f"table-{table}"))
        assert set(row_names("wei", table)) <= named
        assert len(ours) == {"2": 8, "3": 6}[table]
        assert all(cell.paper is not None for row in ours for cell in row[1:])

    def test_wei_table_1(self, tried):
        names = tried["wei-table1"].rows("table-1")
        assert names[:11] == row_names("wei", "1")
        assert len(names) == 14  # and three with another gate
        table = tried["wei-table1"].artefacts["table-1"]
        assert [head.rpartition(", ")[2] for head in table.head[1:]] == (
            ["averaged-best"] * 4 + ["averaged-last"] * 4
        )
        assert all(cell.paper is not None for row in table.rows[:11] for cell in row[1:])

    @pytest.mark.parametrize("data", ["cifar10", "cifar100"])
    def test_medi_tables_1_and_2(self, tried, data):
        for table, many in (("1", 23), ("2", 22)):
            name = f"table-{table}-{data.replace('cifar', 'cifar-')}"
            made = tried[f"medi-table{table}"].artefacts[name]
            ours = [row for row in made.rows if "gate: share" not in row[0].words]
            assert [row[0].words for row in ours] == row_names("medi", table, data)
            assert len(ours) == many
            assert all(cell.paper is not None for row in ours for cell in row[1:])

    @pytest.mark.parametrize("table", ["1", "2"])
    def test_amerehi_tables(self, tried, table):
        assert tried["amerehi-tables"].rows(f"table-{table}") == ["Std", "Adv", "Adv+"]
        made = tried["amerehi-tables"].artefacts[f"table-{table}"]
        assert all(cell.paper is not None for row in made.rows for cell in row[1:])

    def test_corruptions_of_medi_have_nine_methods_each(self, tried):
        for table, first in (("table-3", "FAIR-TAT"), ("table-4", "AT")):
            head = tried["medi-corruptions"].artefacts[table].head
            worst = [name for name in head if name.endswith(", worst")]
            assert worst[0] == f"{first}, worst"
            assert len(worst) == len([name for name in head if name.endswith(", average")]) == 12
            assert len([name for name in worst if TWIN in name]) == 3

    def test_corruptions_stand_by_severity_and_beside_the_attack(self, tried):
        severities = [f"{name} {level}" for name in ("fog", "contrast") for level in range(1, 6)]
        assert tried["amerehi-corruptions"].rows("figure-2") == severities
        gaps = tried["benz-corruptions"].rows("gaps-under-corruptions-and-under-attack")
        assert gaps[:2] == ["clean", "pgd-20"]
        assert len(gaps) == 17

    def test_sixteen_factors(self, tried):
        assert len(tried["amerehi-imagenet-x"].rows("figures-3-and-4")) == 16


class TestClasses:
    def test_the_ten_classes_of_cifar_10(self, tried):
        assert tried["benz-gaps"].rows("figure-2") == list(NAMES_10)
        assert tried["medi-fps"].rows("figure-1") == list(NAMES_10)
        assert tried["wei-classes"].rows("classes-under-autoattack") == list(NAMES_10)
        margins = tried["wei-floor"].artefacts["figure-5-b"]
        assert {line.name.split(", ")[-1] for line in margins.figure.series} == set(NAMES_10)

    def test_the_twenty_superclasses(self, tried):
        for figure in ("figure-4", "figure-11", "figure-12"):
            assert set(tried["ahn-superclasses"].rows(figure)) == set(GROUPS_100)

    def test_chair_and_fox_over_the_eight_methods(self, tried):
        panels = tried["ahn-dynamics"].artefacts["figure-3"].figure.panels
        assert [panel.title for panel in panels] == ["chair", "fox"]
        for panel in panels:
            twins = [one.name for one in panel.series if TWIN in one.name]
            assert (len(panel.series), len(twins)) == (10, 2)

    def test_medi_fps_has_at_least_four_architectures(self, tried):
        head = tried["medi-fps"].artefacts["figure-1"].head
        assert len([name for name in head if name.startswith("C_FPS")]) >= 4

    def test_classes_of_every_data_set_that_universality_names(self, tried):
        runs = tried["benz-universality"].found.where(row="data")
        many = {one.labels["data"]: len(one.record().about["data"]["class_names"]) for one in runs}
        assert many["cifar100"] == 100
        assert many["mnist"] == many["fashion-mnist"] == many["svhn"] == many["cifar10"] == 10


class TestClaims:
    def test_every_claim_about_a_cell_finds_its_column_and_row(self, tried):
        """Whether the cell has a number is another matter."""
        lost = {}
        for claim in claims():
            if claim.kind == "cell" and claim.studies and claim.studies[0] not in NO_NUMBERS:
                made = tuple(tried[claim.studies[0]].artefacts.values())
                try:
                    printed_cells(claim, made)
                except Hole as reason:
                    if str(reason).startswith("no artefact of the study has"):
                        lost[claim.id] = str(reason)
        assert not set(lost) - WITHOUT_CELL, lost
