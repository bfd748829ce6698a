"""What the studies that are built in ask for: axes, attacks, shared runs, and who names them."""

import re
from collections import Counter

import pytest
from typer.testing import CliRunner

from classwise.cli import app
from classwise.cli.app import out
from classwise.studies.alternatives import OTHER_GATE
from classwise.studies.papers.claims import claims
from classwise.studies.planned import UNOBTAINABLE, plan
from classwise.studies.runs_folder import together
from classwise.studies.study import load_study, study_names


class TestAxes:
    """What the files ask for where no scale makes it smaller."""

    def test_ahn_has_every_radius_from_1_to_16(self):
        for scale, radii in (("paper", range(1, 17)), ("minutes", (1, 4, 8, 12, 16))):
            runs = plan(load_study("ahn-eps"), scale)
            for recipe in ("at", "trades"):
                found = [run for run in runs if run.labels["recipe"] == recipe]
                assert [run.labels["eps"] for run in found] == [f"{r}/255" for r in radii]
                assert {run.config.eps_of_judge for run in found} == {8 / 255}

    def test_wei_has_eight_radii_eight_betas_and_five_floors(self):
        for study, axis, values in (
            ("wei-margins", "eps", [f"{2 * k}/255" for k in range(1, 9)]),
            ("wei-beta", "trades.beta", [str(k) for k in range(1, 9)]),
            ("wei-floor", "ccm.margin_floor", ["0.3", "0.4", "0.5", "0.6", "0.7"]),
        ):
            runs = plan(load_study(study), "paper")
            found = [
                run.labels[axis] for run in runs if axis in run.labels and "row" not in run.labels
            ]
            assert found == values

    @pytest.mark.parametrize(
        ("study", "many"), [("medi-corruptions", 18), ("amerehi-corruptions", 15),
                            ("amerehi-tables", 15), ("benz-corruptions", 15)],
    )  # fmt: skip
    def test_corruptions_at_five_severities(self, study, many):
        for scale in ("minutes", "paper"):
            run = plan(load_study(study), scale)[0]
            names = {one for audit in run.audits for one in audit.attacks if "corruption:" in one}
            assert len(names) == 5 * many
            assert study != "medi-corruptions" or not any("glass_blur" in one for one in names)

    def test_seeds_and_attacks_at_minutes(self):
        runs = plan(load_study("wei-table1"), "minutes")
        seeds = Counter(run.labels["row"] for run in runs)
        assert {row for row, many in seeds.items() if many == 1} == {
            f"{base} + CFA" for base in ("AT", "TRADES", "FAT")
        }
        assert set(seeds.values()) == {1, 3}
        first = next(run for run in runs if run.labels == {**run.labels, "row": "AT", "seed": "0"})
        asked = {(one, audit.limit) for audit in first.audits for one in audit.attacks}
        assert asked == {
            ("clean", 0), ("pgd-20", 0), ("suite(apgd-ce,apgd-t)", 1000),
            ("suite(apgd-ce,apgd-t,fab-t,square)", 500),
        }  # fmt: skip

    def test_a_search_of_the_best_weights_is_made_of_one_seed(self):
        asked = {
            (weights, run.labels["seed"])
            for run in plan(load_study("wei-table1"), "minutes")
            for audit in run.audits
            if "suite(apgd-ce,apgd-t)" in audit.attacks
            for weights in audit.weights
        }
        assert asked == {*((("averaged-last", seed)) for seed in "012"), ("averaged-best", "0")}


class TestMinutes:
    """What the runs of all studies come to, together."""

    def test_runs_are_some_hundreds(self):
        runs = [run for name in study_names() for run in plan(load_study(name), "minutes")]
        assert len(together(runs)) <= 242  # that many were decided on; more is hours

    def test_a_gate_that_may_not_open_has_one_seed_and_its_twin_as_many_as_others(self):
        for name in study_names():
            seeds = Counter(
                run.labels["row"] for run in plan(load_study(name), "minutes")
                if "row" in run.labels and run.labels["data"] == "cifar10"
            )  # fmt: skip
            for row in seeds:
                if row.endswith(OTHER_GATE):
                    assert seeds[row.removesuffix(OTHER_GATE)] == 1, (name, row)

    @pytest.mark.parametrize(
        ("study", "like"),
        [
            ("medi-table2", "medi-table1"), ("medi-corruptions", "medi-table1"),
            *((name, "ahn-table1") for name in
              ("ahn-both-views", "ahn-dynamics", "ahn-superclasses")),
        ],
    )  # fmt: skip
    def test_twins_are_runs_that_a_table_has(self, study, like):
        twins = {run.key for run in plan(load_study(study), "minutes")
                 if run.labels["row"].endswith(OTHER_GATE)}  # fmt: skip
        assert twins
        assert twins <= {run.key for run in plan(load_study(like), "minutes")}


class TestSharedRuns:
    """Where a paper has one run behind several figures, studies share it."""

    @pytest.mark.parametrize("scale", ["smoke", "minutes", "paper"])
    def test_runs_of_sweeps_are_those_of_the_tables(self, scale):
        def key(study, **labels):
            (run,) = [
                run for run in plan(load_study(study), scale)
                if all(run.labels.get(name) == value for name, value in labels.items())
            ]  # fmt: skip
            return run.key

        seed = {"seed": "0"}
        pgd = key("ahn-table1", row="PGD", **seed)
        assert pgd == key("ahn-eps", recipe="at", eps="8/255", **seed)
        assert pgd == key("ahn-dynamics", row="PGD", **seed)
        at = key("wei-table1", row="AT", **seed)
        assert at == key("wei-margins", eps="8/255") == key("wei-fluctuation", row="AT", **seed)
        assert at == key("wei-floor", row="AT", **seed)
        trades = key("wei-table1", row="TRADES", **seed)
        assert trades == key("wei-beta", **{"trades.beta": "6"})
        assert key("wei-table2", row="AT + CCM", **seed) == key(
            "wei-floor", **{"ccm.margin_floor": "0.5"}
        )
        assert key("medi-table1", row="FAIR-TAT", data="cifar10", **seed) == key(
            "medi-targets", row="targets by C_FPS, calibrated margins", data="cifar10", **seed
        )

    def test_what_cannot_be_had_at_minutes_is_a_hole(self):
        for study, need in (("wei-tiny", "tiny-imagenet"), ("amerehi-imagenet-x", "imagenet")):
            runs = plan(load_study(study), "minutes")
            assert {run.lacking for run in runs} == {f"{UNOBTAINABLE} ({need})"}
        lacking = {
            run.labels["data"]: run.lacking
            for run in plan(load_study("benz-universality"), "minutes")
        }
        assert lacking["svhn"].startswith(UNOBTAINABLE)
        assert not lacking["mnist"] + lacking["fashion-mnist"]


class TestList:
    def test_every_table_and_figure_of_the_papers_is_named(self, monkeypatch):
        """The tables and figures that the five papers have, as `study list` says them."""
        monkeypatch.setattr(out, "_width", 400)
        listed = CliRunner().invoke(app, ["study", "list"]).output
        there: dict[tuple[str, str], set[int]] = {}
        for name in study_names():
            study = load_study(name)
            assert name in listed
            assert study.source in listed
            assert study.shows in listed
            for what, words in re.findall(r"(table|figure)s? ([\d, and]+)", study.source):
                numbers = {int(number) for number in re.findall(r"\d+", words)}
                there.setdefault((study.paper, what), set()).update(numbers)
        assert there == {
            ("ahn", "table"): {1}, ("ahn", "figure"): set(range(1, 13)),
            ("wei", "table"): {1, 2, 3}, ("wei", "figure"): {1, 2, 3, 4, 5},
            ("benz", "figure"): {1, 2},
            ("medi", "table"): {1, 2, 3, 4}, ("medi", "figure"): {1, 2},
            ("amerehi", "table"): {1, 2}, ("amerehi", "figure"): {1, 2, 3, 4},
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("study", "words"),
        [
            ("ahn-dynamics", "section"), ("ahn-both-views", "section 4.1"),
            ("wei-toy", "theorems 1 to 4"), ("wei-margins", "section 3.1"),
            ("wei-fluctuation", "section 3.3"), ("wei-cost", "section 4.4"),
            ("medi-fps", "equations 7 and 8"), ("benz-universality", "3.1 and 3.2"),
        ],
    )  # fmt: skip
    def test_sections_that_are_no_figure_are_named(self, study, words):
        assert words in load_study(study).source


class TestClaims:
    def test_every_claim_about_runs_finds_them_in_its_study(self):
        """At the paper's scale; a claim without a study is one that nobody runs."""
        planned = {
            name: [run.labels for run in plan(load_study(name), "paper")] for name in study_names()
        }
        lost = []
        for claim in claims():
            terms = [term for side in (claim.left, claim.right) for one in side for term in one]
            if not claim.studies or claim.kind in ("cell", "same", "number"):
                continue
            if not any(all(fits(term, planned[name]) for term in terms) for name in claim.studies):
                lost.append(claim.id)
        assert lost == []


def fits(term, runs) -> bool:
    """Whether some run has the labels; `*!A` is any value but A."""
    return any(
        all(
            labels.get(axis) == value
            or (
                value.startswith("*")
                and axis in labels
                and labels[axis] not in value.split("!")[1:]
            )
            for axis, value in term.labels
        )
        for labels in runs
    )
