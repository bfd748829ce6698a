"""Corruptions, false positives, attacks on further outputs, factors."""

import numpy as np
import pytest
from found_scenes import accuracies, column, confusion, found, found_run, report, seeds
from scipy.stats import spearmanr

from classwise.judging.rates import ANNOTATED, Tally
from classwise.studies.artefacts.corruptions import CorruptionsOptions, corruptions
from classwise.studies.artefacts.factors import FactorsOptions, factors
from classwise.studies.artefacts.false_positives import FalsePositivesOptions, false_positives
from classwise.studies.artefacts.outputs import OutputsOptions, outputs
from classwise.studies.found import FoundRun
from classwise.studies.papers.cells import PaperColumn, paper_cell


def corrupted(name, severity, table):
    facts = {"family": f"corruption:{name}", "strength": float(severity), "kind": "shift"}
    return report(f"corruption:{name}-{severity}", table, eps=0.0, **facts)


class TestCorruptions:
    SEVERITIES = (("fog", (1, 3)), ("snow", (1, 3)))

    def scene(self, labels=None):
        runs, tables = [], {}
        for seed in (0, 1):
            clean, attacked = confusion(seed, 4), confusion(10 + seed, 4)
            reports = [report("clean", clean), report("pgd-20", attacked)]
            tables[seed, "clean"], tables[seed, "pgd-20"] = clean, attacked
            for k, (name, severities) in enumerate(self.SEVERITIES):
                for severity in severities:
                    table = confusion(100 * k + 20 * severity + seed, 4)
                    tables[seed, name, severity] = table
                    reports.append(corrupted(name, severity, table))
            told = {**(labels or {"row": "AT"}), "seed": str(seed)}
            runs.append(found_run(told, {"last": reports}))
        return found(*runs), tables

    def options(self, **given):
        return CorruptionsOptions(kind="corruptions", title="Table 3", **given)

    def test_severities_are_pooled_before_the_minimum(self):
        scene, tables = self.scene()
        made = corruptions(scene, self.options())
        for name in ("fog", "snow"):
            both = [accuracies(tables[s, name, 1] + tables[s, name, 3]) for s in (0, 1)]
            assert column(made, "AT, worst")[name].rates == pytest.approx([min(b) for b in both])
            means = [sum(b) / 4 for b in both]
            assert column(made, "AT, average")[name].rates == pytest.approx(means)
        single = [min(accuracies(tables[0, "fog", s])) for s in (1, 3)]
        assert column(made, "AT, worst")["fog"].rates[0] != pytest.approx(min(single))

    def test_of_each_severity(self):
        scene, tables = self.scene()
        made = corruptions(scene, self.options(measures=["error"], by_severity=True))
        cells = column(made, "AT, error")
        assert list(cells) == ["fog 1", "fog 3", "snow 1", "snow 3"]
        expected = [1 - sum(accuracies(tables[s, "snow", 3])) / 4 for s in (0, 1)]
        assert cells["snow 3"].rates == pytest.approx(expected)
        assert made.figure.kind == "heat"
        fog, snow = made.figure.series
        assert (fog.name, fog.x, snow.y[1]) == ("fog", ("1", "3"), cells["snow 3"].mean)

    def test_gaps_beside_those_of_an_attack(self):
        scene, tables = self.scene()
        made = corruptions(scene, self.options(measures=["gap"], beside=["clean", "pgd-20"]))
        means = {}
        for name in ("clean", "pgd-20", "fog", "snow"):
            gaps = []
            for seed in (0, 1):
                parts = [t for key, t in tables.items() if key[0] == seed and key[1] == name]
                rates = accuracies(sum(parts))
                gaps.append(max(rates) - min(rates))
            means[name] = sum(gaps) / 2
            assert column(made, "AT, gap")[name].rates == pytest.approx(gaps)
        wider = [n for n in ("fog", "snow") if means[n] > means["clean"]]
        far = [n for n in wider if means[n] >= means["pgd-20"]]
        (note,) = [note for note in made.notes if "widen the gap" in note]
        assert note.startswith(f"AT: {len(wider)} of 2 corruptions widen")
        assert f", {len(far)} at least as far as pgd-20" in note

    def test_the_order_of_classes_beside_that_of_an_attack(self):
        scene, tables = self.scene()
        made = corruptions(scene, self.options(order_of="pgd-20"))
        cell = column(made, "AT, order of classes as under pgd-20")["fog"]
        expected = [
            spearmanr(
                accuracies(tables[s, "fog", 1] + tables[s, "fog", 3]),
                accuracies(tables[s, "pgd-20"]),
            ).statistic
            for s in (0, 1)
        ]
        assert cell.rates == pytest.approx(expected)
        assert cell.unit == "ρ"

    def test_the_paper_beside(self):
        scene, _ = self.scene({"row": "FAIR-TAT", "data": "cifar10"})
        study = type(scene.study)(title="x", paper="medi", source="table 3")
        scene = type(scene)(study, scene.scale, scene.runs)
        made = corruptions(scene, self.options(paper_table="3"))
        printed = paper_cell("medi", "3", "FAIR-TAT", PaperColumn("worst", "fog"))
        cell = column(made, "FAIR-TAT, worst")["fog"]
        assert printed is not None
        assert (cell.paper, cell.doubtful) == (printed.value, printed.doubtful)

    def test_without_any_there_is_a_hole(self):
        runs, _ = seeds({"row": "AT"})
        made = corruptions(found(*runs), self.options())
        assert made.rows[0][1].hole == "no corruption was audited"


class TestFalsePositives:
    def test_share_one_vs_rest_and_recall(self):
        runs, tables = seeds({"recipe": "at", "model": "small"}, count=2)
        other, _ = seeds({"recipe": "at", "model": "large"}, count=2, first=5)
        chosen = FalsePositivesOptions(kind="false-positives", title="Fig. 1")
        made = false_positives(found(*runs, *other), chosen)
        for k, name in enumerate("abc"):
            shares, ratings, recalls = [], [], []
            for seed in (0, 1):
                table = tables[seed, "pgd-20"].tolist()
                wrong = sum(table[i][j] for i in range(3) for j in range(3) if i != j)
                called = sum(table[i][k] for i in range(3) if i != k)
                right = sum(table[i][j] for i in range(3) for j in range(3) if k not in (i, j))
                shares.append(called / wrong)
                ratings.append((table[k][k] + right) / sum(map(sum, table)))
                recalls.append(table[k][k] / sum(table[k]))
            assert column(made, "C_FPS, at, small")[name].rates == pytest.approx(shares)
            rated = column(made, "one-vs-rest accuracy, at, small")[name]
            assert rated.rates == pytest.approx(ratings)
            assert column(made, "recall, at, small")[name].rates == pytest.approx(recalls)
        assert [one.name for one in made.figure.panels[0].series] == ["at, small", "at, large"]
        assert made.figure.panels[0].level == pytest.approx(1 / 3)

    def test_without_mistakes_there_is_nothing_to_share(self):
        run = found_run({"recipe": "at", "seed": "0"}, {"last": [report("pgd-20", np.eye(3))]})
        made = false_positives(found(run), FalsePositivesOptions(kind="false-positives", title="x"))
        assert column(made, "C_FPS, at")["a"].hole == "no mistakes: nothing to share"


class TestOutputs:
    CONDITIONS = ("pgd-40", "pgd-40(logits=all)")

    def test_both_attacks_and_their_difference_in_each_run(self):
        runs, tables = seeds({"row": "Adv+"}, self.CONDITIONS, count=3)
        made = outputs(found(*runs), OutputsOptions(kind="outputs", title="x"))
        worst = [[min(accuracies(tables[s, c])) for s in range(3)] for c in self.CONDITIONS]
        for condition, rates in zip(self.CONDITIONS, worst, strict=True):
            assert column(made, f"worst, {condition}")["Adv+"].rates == pytest.approx(rates)
        change = column(made, "worst, difference")["Adv+"]
        assert change.rates == pytest.approx([b - a for a, b in zip(*worst, strict=True)])
        assert change.unit == "points"
        names = [one.name for one in made.figure.series]
        assert names == [f"{m}, {c}" for m in ("average", "worst") for c in self.CONDITIONS]

    def test_no_difference_between_other_images(self):
        reports = [
            report("pgd-40", confusion(1)),
            report("pgd-40(logits=all)", confusion(2, size=9)),
        ]
        run = found_run({"row": "Adv+", "seed": "0"}, {"last": reports})
        made = outputs(found(run), OutputsOptions(kind="outputs", title="x"))
        assert "60 and 27 images" in column(made, "worst, difference")["Adv+"].hole

    def test_a_network_without_further_outputs_has_a_hole(self):
        runs, _ = seeds({"row": "Adv"}, self.CONDITIONS[:1])
        made = outputs(found(*runs), OutputsOptions(kind="outputs", title="x"))
        assert column(made, "worst, pgd-40")["Adv"].rates
        assert "not audited" in column(made, "worst, difference")["Adv"].hole


class TestFactors:
    NAMES = ("pose", "style", ANNOTATED)

    def scene(self):
        runs, hits = [], {}
        for k, row in enumerate(("Std", "Adv")):
            for seed in (0, 1):
                draw = np.random.default_rng(10 * k + seed)
                hits[row, seed] = draw.integers(5, 18, 3)
                tally = Tally(self.NAMES, hits[row, seed], np.array([20, 20, 40]), True)
                clean = report("clean", confusion(seed), groups={"factor": tally})
                runs.append(found_run({"row": row, "seed": str(seed)}, {"last": [clean]}))
        return found(*runs), hits

    def test_error_ratio_and_spill_over(self):
        scene, hits = self.scene()
        made = factors(scene, FactorsOptions(kind="factors", title="Fig. 3", base="Std"))
        assert [row[0].words for row in made.rows] == ["pose", "style"]

        def ratio(row, seed, k):
            return (1 - hits[row, seed][k] / 20) / (1 - hits[row, seed][2] / 40)

        for k, name in enumerate(("pose", "style")):
            errors = [1 - hits["Adv", s][k] / 20 for s in (0, 1)]
            assert column(made, "error, Adv")[name].rates == pytest.approx(errors)
            ratios = [ratio("Adv", s, k) for s in (0, 1)]
            assert column(made, "error ratio, Adv")[name].rates == pytest.approx(ratios)
            moved = [ratio("Adv", s, k) - ratio("Std", s, k) for s in (0, 1)]
            assert column(made, "spill-over, Adv")[name].rates == pytest.approx(moved)
        assert "spill-over, Std" not in made.head

    def test_data_without_annotations_are_a_hole_for_every_factor(self):
        runs, _ = seeds({"row": "Std"}, count=1)
        gone = FoundRun({"row": "Adv", "seed": "0"}, None, "not run: data unobtainable")
        made = factors(found(*runs, gone), FactorsOptions(kind="factors", title="Fig. 3"))
        assert len(made.rows) == 16
        assert "no such annotations" in column(made, "error, Std")["style"].hole
        assert column(made, "error, Adv")["style"].hole == "not run: data unobtainable"
