"""Runs side by side: the same weak classes or not, and what may be said of it."""

import numpy as np
import pytest
from agreeing import NAMES, SPREAD, audited_run
from refusals import refused
from scipy import stats

import classwise
from classwise.record.remarks import note_key, write_remarks


def agreed(*folders, **options):
    (found,) = classwise.agree(folders, **{"draws": 300, **options})
    return found


def test_figures_are_those_of_the_verdicts(tmp_path):
    turned = [0.5, 0.3, 0.2, 0.6, 0.9, 0.8]
    a, b = audited_run(tmp_path / "a"), audited_run(tmp_path / "b", turned, seed=1)
    found = agreed(a, b).ranks
    assert found.runs == ("a", "b")
    assert found.class_names == tuple(NAMES)
    assert found.rates == pytest.approx(np.array([SPREAD, turned]), abs=0.1)
    assert found.sizes.tolist() == [[400] * 6] * 2
    rho, tau = (f(*found.rates).statistic for f in (stats.spearmanr, stats.kendalltau))
    (pair,) = found.pairs
    assert pair.value == pytest.approx(rho)
    assert pair.low <= rho <= pair.high
    assert found.measures["kendall"].value[0, 1] == pytest.approx(tau)
    assert found.measures["overlap"].value[0, 1] == 1  # ant, bee and cat in both
    assert found.ranks[0].tolist() == [1, 2, 3, 4, 5, 6]
    assert (found.steady > 0.9).all()
    assert found.paired


class TestVerdict:
    def test_the_same_order_clears_what_differs(self, tmp_path):
        a = audited_run(tmp_path / "a", model="m1", seed=0)
        close = [rate + 0.02 for rate in SPREAD]
        b = audited_run(tmp_path / "b", close, model="m2", seed=1, optimiser="adam")
        found = agreed(a, b)
        assert found.verdict.same is True
        assert found.differs == {"optimiser": ("not said", "adam")}
        assert "optimiser" in found.verdict.words
        assert "little to do with" in found.verdict.words

    def test_another_order_names_the_pair_and_what_differs_there(self, tmp_path):
        runs = [
            audited_run(tmp_path / "a", lr=0.1),
            audited_run(tmp_path / "b", [r - 0.05 for r in SPREAD], lr=0.1, weight_decay=0.1),
            audited_run(tmp_path / "c", SPREAD[::-1], lr=0.2, weight_decay=0.1),
        ]
        found = agreed(*runs)
        assert found.verdict.same is False
        lowest = found.ranks.pairs[0]
        assert "c" in (found.ranks.runs[lowest.first], found.ranks.runs[lowest.second])
        assert "may be one cause" in found.verdict.words
        assert "lr" in found.verdict.words

    def test_few_images_leave_it_undecided(self, tmp_path):
        runs = [audited_run(tmp_path / n, per_class=8, seed=k) for k, n in enumerate("ab")]
        found = agreed(*runs)
        assert found.verdict.same is None
        assert "the smallest class has 8 images" in found.verdict.words
        assert "8 images" in found.ranks.notes[0]
        assert found.ranks.pairs[0].high - found.ranks.pairs[0].low > 0.1

    def test_orders_that_may_or_may_not_be_the_same_are_undecided(self, tmp_path):
        runs = [audited_run(tmp_path / n, per_class=30, seed=k) for k, n in enumerate("ab")]
        found = agreed(*runs, same_from=0.99)
        assert found.verdict.same is None
        assert "More images" in found.verdict.words

    def test_the_threshold_is_the_callers(self, tmp_path):
        runs = [audited_run(tmp_path / n, per_class=40, seed=k) for k, n in enumerate("ab")]
        assert agreed(*runs, same_from=0.1).verdict.same is True
        with refused("same_from"):
            agreed(*runs, same_from=2)

    def test_no_order_is_undecided(self, tmp_path):
        a = audited_run(tmp_path / "a", [1.0] * 6)
        found = agreed(a, audited_run(tmp_path / "b"))
        assert found.verdict.same is None
        assert "no order" in found.verdict.words


class TestPairing:
    def test_a_run_beside_itself_agrees_for_sure(self, tmp_path):
        runs = [audited_run(tmp_path / name, per_class=100) for name in "ab"]
        (pair,) = agreed(*runs).ranks.pairs
        assert pair.value == pair.high == 1
        assert pair.low > 0.97

    def test_other_data_are_drawn_apart(self, tmp_path):
        a = audited_run(tmp_path / "a", per_class=30)
        b = audited_run(tmp_path / "b", per_class=30, data="d2")
        found, paired = (
            agreed(a, one).ranks for one in (b, audited_run(tmp_path / "c", per_class=30))
        )
        assert not found.paired
        assert any("different data" in note for note in found.notes)
        # the same verdicts, but not the same draws
        assert found.pairs[0].low < paired.pairs[0].low

    def test_images_that_one_run_lacks_are_left_out_and_said(self, tmp_path):
        a = audited_run(tmp_path / "a", per_class=100)
        b = audited_run(tmp_path / "b", per_class=100, samples=np.arange(0, 600, 2))
        found = agreed(a, b).ranks
        assert found.left_out == 300
        assert found.sizes.tolist() == [[50] * 6] * 2
        assert "300 verdicts" in found.notes[0]

    def test_classes_without_images_are_left_out_and_said(self, tmp_path):
        few = np.arange(400, 2400)
        found = agreed(
            audited_run(tmp_path / "a", samples=few), audited_run(tmp_path / "b", seed=1)
        ).ranks
        assert found.missing == ("ant",)
        assert found.class_names == tuple(NAMES[1:])
        assert "ant" in found.notes[0]

    def test_the_same_audit_may_have_another_label(self, tmp_path):
        a = audited_run(tmp_path / "a")
        audited_run(a, seed=3, condition="pgd-3")
        b = audited_run(tmp_path / "b", seed=1)
        assert [one.condition for one in classwise.agree([a, b], draws=200)] == ["pgd-2"]
        audited_run(b, seed=4, condition="pgd-3")
        both = classwise.agree([a, b], draws=200)
        assert [one.condition for one in both] == ["pgd-2", "pgd-3"]


class TestRefusals:
    def test_what_cannot_be_compared(self, tmp_path):
        a = audited_run(tmp_path / "a")
        with refused("at least two"):
            agreed(a)
        with refused("named twice"):
            agreed(a, a)
        with refused("different classes"):
            other = audited_run(tmp_path / "b", names=["x", "y", "z", "u", "v", "w"])
            agreed(a, other)
        with refused("was not audited under pgd-2", "pgd-3"):
            agreed(a, audited_run(tmp_path / "c", condition="pgd-3"), condition="pgd-2")
        with refused("no condition in common"):
            agreed(a, tmp_path / "c")
        with refused("share no image"):
            halves = [np.arange(1200), np.arange(1200, 2400)]
            agreed(*(audited_run(tmp_path / f"d{k}", samples=h) for k, h in enumerate(halves)))
        with refused("1 names of weights", "2 runs"):
            agreed(a, tmp_path / "b", weights=["last"])
        with refused("top is 6", "from 1 to 5"):
            agreed(a, audited_run(tmp_path / "e"), top=6)

    def test_audits_that_stopped_early(self, tmp_path):
        a, b = audited_run(tmp_path / "a"), audited_run(tmp_path / "b")
        (facts,) = classwise.judging.samples.audit_facts(b)
        notes = {note_key(facts): "stopped after 3 minutes"}
        write_remarks(b, facts["model_hash"], seen={}, probed=None, black_box=False, notes=notes)
        with refused("b under pgd-2 stopped early"):
            agreed(a, b)

    def test_labels_of_other_data(self, tmp_path):
        a = audited_run(tmp_path / "a", per_class=100)
        b = audited_run(tmp_path / "b", per_class=90)
        with refused("other labels"):
            agreed(a, b)


def test_weights_of_one_run_are_told_apart(tmp_path):
    a = audited_run(tmp_path / "a", model="m1")
    audited_run(a, seed=5, model="m2", weights="best")
    found = agreed(a, a, weights=["last", "best"])
    assert found.ranks.runs == ("a (last)", "a (best)")
    assert found.differs == {"weights": ("last", "best")}
