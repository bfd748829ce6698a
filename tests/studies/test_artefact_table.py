"""The table of measures under conditions, and the cells it is made of."""

import statistics

import pytest
from found_scenes import accuracies, column, confusion, found, found_run, report, seeds

from classwise.errors import ClasswiseError
from classwise.studies.artefacts import KINDS
from classwise.studies.artefacts.table import TableOptions, table
from classwise.studies.cells import cell_over, settings_of
from classwise.studies.found import FoundRun
from classwise.studies.papers.cells import PaperColumn, paper_cell


def options(**given):
    return TableOptions(kind="table", title="Table 1", **given)


class TestNumbers:
    def test_are_means_and_sample_deviations_over_seeds(self):
        runs, tables = seeds({"row": "AT"}, count=3)
        made = table(found(*runs), options(measures=["average", "worst", "spread", "gap", "error"]))
        for condition in ("clean", "pgd-20"):
            each = [accuracies(tables[seed, condition]) for seed in range(3)]
            expected = {  # classes are of equal size, so that the average is theirs
                "average": [sum(rates) / 3 for rates in each],
                "worst": [min(rates) for rates in each],
                "spread": [statistics.pstdev(rates) for rates in each],
                "gap": [max(rates) - min(rates) for rates in each],
                "error": [1 - sum(rates) / 3 for rates in each],
            }
            for measure, values in expected.items():
                cell = column(made, f"{measure}, {condition}")["AT"]
                assert cell.rates == pytest.approx(values)
                assert cell.over.deviation == pytest.approx(statistics.stdev(values))

    def test_the_class_most_often_worst_is_named(self):
        tables = [
            [[5, 5, 0], [0, 9, 1], [0, 0, 10]],
            [[1, 9, 0], [0, 9, 1], [0, 0, 10]],
            [[9, 1, 0], [0, 9, 1], [5, 0, 5]],
        ]
        runs = [
            found_run({"row": "AT", "seed": str(k)}, {"last": [report("clean", one)]})
            for k, one in enumerate(tables)
        ]
        made = table(found(*runs), options(measures=["worst"], conditions=["clean"]))
        assert column(made, "worst, clean")["AT"].words == "a 2/3"

    def test_no_class_is_singled_out_of_many_equal_ones(self):
        none = [[9 * (j == (k + 1) % 5) for j in range(5)] for k in range(5)]
        runs = [
            found_run({"row": "AT", "seed": str(s)}, {"last": [report("clean", none)]})
            for s in range(2)
        ]
        chosen = options(measures=["worst"], conditions=["clean"])
        assert column(table(found(*runs), chosen), "worst, clean")["AT"].words == "5 classes 2/2"
        (one,) = table(found(runs[0]), chosen).rows
        assert one[1].words == "5 classes"

    def test_one_seed_has_an_interval_over_images(self):
        runs, tables = seeds({"row": "AT"}, count=1)
        made = table(found(*runs), options(measures=["worst"], conditions=["clean"]))
        cell = column(made, "worst, clean")["AT"]
        assert cell.interval == report("clean", tables[0, "clean"]).worst_interval

    def test_the_tail_needs_many_classes(self):
        few, _ = seeds({"row": "AT"}, count=1)
        made = table(found(*few), options(measures=["tail"], conditions=["clean"]))
        assert "3 classes" in column(made, "tail, clean")["AT"].hole
        many, tables = seeds({"row": "AT"}, count=1, classes=20)
        made = table(found(*many), options(measures=["tail"], conditions=["clean"]))
        worst = sorted(accuracies(tables[0, "clean"]))[:2]
        assert column(made, "tail, clean")["AT"].rates == pytest.approx((sum(worst) / 2,))


class TestRows:
    def test_are_settings_called_by_what_tells_them_apart(self):
        runs = [
            seeds({"row": row, "recipe": recipe, "eps": eps}, count=1, first=k)[0][0]
            for k, (row, recipe, eps) in enumerate(
                [("AT", "at", "4/255"), ("AT", "at", "8/255"), ("T", "trades", "8/255")]
            )
        ]
        assert [one.label for one in settings_of(found(*runs))] == [
            "AT, eps 4/255",
            "AT, eps 8/255",
            "T, eps 8/255",
        ]
        assert [one.label for one in settings_of(found(*runs[1:]))] == ["AT", "T"]

    def test_where_chooses_and_a_wrong_value_is_refused(self):
        runs = [*seeds({"row": "AT"})[0], *seeds({"row": "T"}, first=1)[0]]
        made = table(found(*runs), options(where={"row": "T"}))
        assert [row[0].words for row in made.rows] == ["T"]
        with pytest.raises(ClasswiseError, match="did you mean 'AT'"):
            table(found(*runs), options(where={"row": "At"}))
        with pytest.raises(ClasswiseError, match="unknown axis 'epss'"):
            table(found(*runs), options(where={"epss": "1"}))

    def test_settings_are_never_mixed_in_a_cell(self):
        runs = [*seeds({"row": "AT", "eps": "1"}, count=1)[0], *seeds({"row": "AT", "eps": "2"})[0]]
        with pytest.raises(ClasswiseError, match="differ in eps"):
            cell_over(runs, lambda run: 0.5)  # noqa: ARG005


class TestHoles:
    def test_a_run_that_is_missing_leaves_one(self):
        runs, _ = seeds({"row": "AT"}, count=2)
        gone = FoundRun({"row": "AT", "seed": "1"}, None, "failed: out of memory")
        whole = table(found(*runs), options())
        made = table(found(runs[0], gone), options())
        cell = column(made, "average, clean")["AT"]
        assert cell.rates == column(whole, "average, clean")["AT"].rates[:1]
        assert cell.hole == "1 of 2 seeds missing: failed: out of memory"
        assert any("1 of 2 runs are missing: failed" in note for note in made.notes)
        empty = table(found(gone), options())
        assert column(empty, "average, clean")["AT"].hole == "failed: out of memory"
        assert not column(empty, "average, clean")["AT"].rates

    def test_what_was_not_audited_says_what_was(self):
        runs, _ = seeds({"row": "AT"}, count=1)
        made = table(found(*runs), options(conditions=["autoattack"], weights=["last", "best"]))
        assert "there: clean, pgd-20" in column(made, "average, autoattack, last")["AT"].hole
        assert "weights best" in column(made, "average, autoattack, best")["AT"].hole

    def test_a_mean_over_corruptions_and_reassessed_labels(self):
        runs, _ = seeds({"row": "AT"}, count=1)
        made = table(found(*runs), options(conditions=["corruptions", "real"], measures=["error"]))
        assert column(made, "error, corruptions")["AT"].hole == "no corruption was audited"
        assert column(made, "error, real")["AT"].hole == "no reassessed labels"


class TestWeights:
    def test_averaged_are_those_of_the_average_where_there_is_one(self):
        plain, mean = confusion(1), confusion(2)
        both = {"last": [report("clean", plain)], "ema-last": [report("clean", mean)]}
        runs = [
            found_run({"row": "AT", "seed": "0"}, {"last": [report("clean", plain)]}),
            found_run({"row": "EMA", "seed": "0"}, both),
        ]
        chosen = options(measures=["worst"], conditions=["clean"], weights=["averaged-last"])
        cells = column(table(found(*runs), chosen), "worst, clean")
        assert cells["AT"].rates == (min(accuracies(plain)),)
        assert cells["EMA"].rates == (min(accuracies(mean)),)

    def test_an_average_that_never_began_is_a_hole(self):
        labels = {"row": "AT + CFA", "recipe": "at+cfa", "seed": "0"}
        run = found_run(labels, {"last": [report("clean", confusion(1))]})
        made = table(found(run), options(conditions=["clean"], weights=["averaged-last", "last"]))
        assert "never began" in column(made, "worst, clean, averaged-last")["AT + CFA"].hole
        assert column(made, "worst, clean, last")["AT + CFA"].rates

    def test_another_attack_may_stand_for_the_papers(self):
        one = confusion(3)
        run = found_run(
            {"row": "AT", "seed": "0"},
            {"last": [report("pgd-20", one)]},
            stand_ins={"autoattack": "pgd-20"},
        )
        made = table(found(run), options(measures=["worst"], conditions=["autoattack"]))
        cells = column(made, "worst, autoattack (here pgd-20)")
        assert cells["AT"].rates == (min(accuracies(one)),)


class TestThePaperBeside:
    def test_its_number_and_its_doubt(self):
        runs, _ = seeds({"row": "AT + CFA", "data": "cifar10"}, ("autoattack",), count=1)
        made = table(found(*runs), options(conditions=["autoattack"], paper_table="1"))
        printed = paper_cell("wei", "1", "AT + CFA", PaperColumn("worst", "autoattack", "last"))
        assert column(made, "worst, autoattack")["AT + CFA"].paper == printed.value == 20.5

    def test_stands_also_beside_a_hole(self):
        gone = FoundRun({"row": "AT + CFA", "data": "cifar10", "seed": "0"})
        made = table(found(gone), options(conditions=["autoattack"], paper_table="1"))
        cell = column(made, "worst, autoattack")["AT + CFA"]
        assert (cell.paper, cell.hole, cell.rates) == (20.5, "not run yet", ())

    def test_nothing_where_nothing_is_printed(self):
        runs, _ = seeds({"row": "AT + CFA", "data": "cifar10"}, count=1)
        made = table(found(*runs), options(conditions=["pgd-20"], paper_table="1"))
        assert column(made, "worst, pgd-20")["AT + CFA"].paper is None


class TestOptions:
    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"measures": ["wurst"]}, "did you mean 'worst'"),
            ({"conditions": ["pdg-20"]}, "pdg-20"),
            ({"weights": []}, "at least 1"),
            ({"colums": []}, "colums"),
        ],
    )
    def test_a_mistake_is_refused_before_anything_runs(self, given, words):
        with pytest.raises(ValueError, match=words):
            options(**given)

    def test_every_kind_says_its_own_name(self):
        for name, kind in KINDS.items():
            assert kind.options.model_fields["kind"].annotation.__args__ == (name,)
