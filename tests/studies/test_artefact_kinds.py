"""Sweeps, class by class tables and rankings, against plain loops over confusion tables."""

import statistics

import pytest
from found_scenes import accuracies, column, confusion, found, found_run, report, seeds

from classwise.errors import ClasswiseError
from classwise.studies.artefacts.classes import ClassesOptions, classes
from classwise.studies.artefacts.ranking import RankingOptions, ranking
from classwise.studies.artefacts.sweep import SweepOptions, sweep
from classwise.studies.found import FoundRun

RADII = ("8/255", "16/255", "2/255")  # in no order


class TestSweep:
    def scene(self):
        runs, tables = [], {}
        for k, recipe in enumerate(("at", "trades")):
            for j, eps in enumerate(RADII):
                made, of = seeds({"recipe": recipe, "eps": eps}, first=3 * k + j)
                runs += made
                tables[recipe, eps] = of
        return found(*runs), tables

    def options(self, **given):
        return SweepOptions(kind="sweep", title="Fig. 1", x="eps", **given)

    def test_rows_are_the_values_in_order_and_lines_the_other_settings(self):
        scene, tables = self.scene()
        made = sweep(scene, self.options(measures=["spread"], conditions=["pgd-20"]))
        assert made.head == ("eps", "at", "trades")
        assert [row[0].words for row in made.rows] == ["2/255", "8/255", "16/255"]
        for (recipe, eps), of in tables.items():
            expected = [statistics.pstdev(accuracies(of[s, "pgd-20"])) for s in (0, 1)]
            assert column(made, recipe)[eps].rates == pytest.approx(expected)

    def test_the_picture_is_the_table(self):
        scene, _ = self.scene()
        made = sweep(scene, self.options(measures=["spread"], conditions=["pgd-20"]))
        for series, head in zip(made.figure.series, ("at", "trades"), strict=True):
            cells = [column(made, head)[eps] for eps in ("2/255", "8/255", "16/255")]
            assert series.x == (2.0, 8.0, 16.0)
            assert series.y == tuple(cell.mean for cell in cells)
            assert series.high == pytest.approx([c.over.mean + c.over.deviation for c in cells])

    def test_chosen_classes_each_in_a_panel(self):
        scene, tables = self.scene()
        made = sweep(scene, self.options(classes=["b", "nobody"], where={"recipe": "at"}))
        assert [panel.title for panel in made.figure.panels] == ["b", "nobody"]
        assert [one.name for one in made.figure.panels[0].series] == ["clean", "pgd-20"]
        cell = column(made, "b, clean")["8/255"]
        assert cell.rates == tuple(accuracies(tables["at", "8/255"][s, "clean"])[1] for s in (0, 1))
        assert column(made, "nobody, clean")["8/255"].hole == "no class nobody"

    def test_all_classes_are_lines_of_one_panel_per_condition(self):
        scene, _ = self.scene()
        chosen = self.options(classes=["all"], where={"recipe": "at"}, panel="condition")
        panels = sweep(scene, chosen).figure.panels
        assert [panel.title for panel in panels] == ["clean", "pgd-20"]
        assert [one.name for one in panels[0].series] == ["a", "b", "c"]

    def test_runs_without_the_axis_are_named(self):
        scene, _ = self.scene()
        other, _ = seeds({"recipe": "clean"}, first=9)
        made = sweep(found(*scene.runs, *other), self.options(measures=["worst"]))
        assert "Left out, because they have no eps: clean." in made.notes
        assert not any("clean," in head and "at" not in head for head in made.head[1:3])

    def test_a_value_that_a_line_lacks_is_a_gap(self):
        scene, _ = self.scene()
        part = [r for r in scene.runs if r.labels != {**r.labels, "recipe": "at", "eps": "8/255"}]
        made = sweep(found(*part), self.options(measures=["worst"], conditions=["clean"]))
        assert column(made, "at")["8/255"].hole == "the study has no such run"
        assert made.figure.series[0].y[1] is None

    def test_an_axis_of_words_keeps_its_order(self):
        runs = [
            seeds({"recipe": "at", "optimiser": o}, count=1, first=k)[0][0]
            for k, o in enumerate(("sgd", "adamw"))
        ]
        chosen = SweepOptions(kind="sweep", title="x", x="optimiser", measures=["worst"])
        assert sweep(found(*runs), chosen).figure.series[0].x == ("sgd", "adamw")

    def test_needs_something_to_draw(self):
        with pytest.raises(ValueError, match="measures, classes or both"):
            self.options()


class TestClasses:
    def scene(self):
        at, of_at = seeds({"row": "AT"}, first=1)
        cfa, of_cfa = seeds({"row": "CFA"}, first=2)
        return found(*at, *cfa), of_at, of_cfa

    def options(self, **given):
        return ClassesOptions(kind="classes", title="Fig. 1", **given)

    def test_every_class_of_every_row(self):
        scene, of_at, _ = self.scene()
        made = classes(scene, self.options(error=True))
        assert made.head == ("class", "AT", "CFA")
        for k, name in enumerate("abc"):
            expected = [1 - accuracies(of_at[s, "pgd-20"])[k] for s in (0, 1)]
            assert column(made, "AT")[name].rates == pytest.approx(expected)
        assert made.figure.kind == "bars"

    def test_less_the_mean_of_the_same_run(self):
        scene, of_at, _ = self.scene()
        made = classes(scene, self.options(subtract="mean", conditions=["clean", "pgd-20"]))
        for k, name in enumerate("abc"):
            rates = [accuracies(of_at[s, "clean"]) for s in (0, 1)]
            expected = [one[k] - sum(one) / 3 for one in rates]
            assert column(made, "AT, clean")[name].rates == pytest.approx(expected)

    def test_less_the_same_class_of_the_base_with_the_same_seed(self):
        scene, of_at, of_cfa = self.scene()
        chosen = self.options(subtract="base", bases={"CFA": "AT"})
        turned = found(*reversed(scene.runs))  # seeds of the base in another order
        made = classes(turned, chosen)
        assert made.head == ("class", "CFA − AT")
        means = []
        for k, name in enumerate("abc"):
            expected = [
                accuracies(of_cfa[s, "pgd-20"])[k] - accuracies(of_at[s, "pgd-20"])[k]
                for s in (1, 0)
            ]
            means.append(sum(expected) / 2)
            assert column(made, "CFA − AT")[name].rates == pytest.approx(expected)
        above = sum(mean > 0 for mean in means)
        assert any(f"CFA − AT: {above} of 3 classes above" in note for note in made.notes)

    def test_a_base_that_is_missing_leaves_a_hole(self):
        scene, _, _ = self.scene()
        gone = FoundRun({"row": "AT", "seed": "0"}, None, "failed")
        runs = [gone if run.labels == gone.labels else run for run in scene.runs]
        made = classes(found(*runs), self.options(subtract="base", bases={"CFA": "AT"}))
        cell = column(made, "CFA − AT")["a"]
        assert (len(cell.rates), cell.hole) == (1, "1 of 2 seeds missing: failed")

    def test_sorted_in_each_run(self):
        scene, of_at, _ = self.scene()
        made = classes(scene, self.options(sort=True, error=True))
        each = [sorted(1 - rate for rate in accuracies(of_at[s, "pgd-20"])) for s in (0, 1)]
        for place in range(3):
            cell = column(made, "AT")[str(place + 1)]
            assert cell.rates == pytest.approx([one[place] for one in each])
        assert made.figure.kind == "lines"

    def test_nothing_yet(self):
        made = classes(found(FoundRun({"row": "AT", "seed": "0"})), self.options())
        assert made.rows[0][1].hole == "not run yet"

    def test_refusals(self):
        scene, _, _ = self.scene()
        with pytest.raises(ClasswiseError, match="did you mean 'CFA'"):
            classes(scene, self.options(subtract="base", bases={"CFAA": "AT"}))
        with pytest.raises(ValueError, match="give bases"):
            self.options(subtract="base")
        other = found_run({"row": "X", "seed": "0"}, {"last": [report("pgd-20", confusion(1, 4))]})
        with pytest.raises(ClasswiseError, match="2 different lists of classes"):
            classes(found(*scene.runs, other), self.options())


class TestRanking:
    OF = (0, 1, 0, 1, 2, 2)
    NAMES = ("fish", "trees", "people")

    def scene(self, missing=False):
        runs, rates = [], {}
        for k, row in enumerate(("CLEAN", "AT", "T")):
            for seed in (0, 1):
                table = confusion(10 * k + seed, 6)
                rates[row, seed] = accuracies(table)
                facts = {"superclass_of": self.OF, "superclass_names": self.NAMES}
                labels = {"row": row, "seed": str(seed)}
                runs.append(found_run(labels, {"last": [report("pgd-20", table, **facts)]}))
        if missing:
            runs[-2:] = [FoundRun(run.labels) for run in runs[-2:]]
        return found(*runs), rates

    def expected(self, rates, rows):
        """Of each superclass: its classes' mean, then that over methods, for each seed."""
        of = {}
        for number, name in enumerate(self.NAMES):
            members = [k for k, group in enumerate(self.OF) if group == number]
            of[name] = [
                sum(sum(rates[row, s][k] for k in members) / len(members) for row in rows)
                / len(rows)
                for s in (0, 1)
            ]
        return of

    def made(self, scene, **given):
        chosen = RankingOptions(kind="ranking", title="Fig. 4", leave_out=("CLEAN",), **given)
        return ranking(scene, chosen)

    def test_by_the_mean_over_methods(self):
        scene, rates = self.scene()
        made = self.made(scene)
        expected = self.expected(rates, ("AT", "T"))
        cells = column(made, "mean over 2 methods, pgd-20")
        for name, values in expected.items():
            assert cells[name].rates == pytest.approx(values)
        order = sorted(expected, key=lambda name: -sum(expected[name]))
        assert list(cells) == order
        assert made.figure.series[0].x == tuple(order)

    def test_places_in_each_method(self):
        scene, rates = self.scene()
        places = {name: set() for name in self.NAMES}
        for row in ("AT", "T"):
            means = {n: sum(v) for n, v in self.expected(rates, (row,)).items()}
            for place, name in enumerate(sorted(means, key=lambda n: -means[n])):
                places[name].add(place + 1)
        for name, cell in column(self.made(scene), "place in each method").items():
            low, high = min(places[name]), max(places[name])
            assert cell.words == (f"{low} to {high}" if low < high else f"{low}")

    def test_a_method_that_is_missing_is_said(self):
        scene, rates = self.scene(missing=True)
        cell = column(self.made(scene), "mean over 2 methods, pgd-20")["fish"]
        assert cell.rates == pytest.approx(self.expected(rates, ("AT",))["fish"])
        assert cell.hole == "1 of 2 methods missing: T"

    def test_data_without_superclasses_have_no_ranking(self):
        runs, _ = seeds({"row": "CLEAN"}, count=1)
        other, _ = seeds({"row": "AT"}, count=1, first=1)
        made = self.made(found(*runs, *other))
        assert made.rows[0][1].hole == "these data have no superclasses"
