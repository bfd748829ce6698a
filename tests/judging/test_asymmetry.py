"""A taken for B against B taken for A, pair by pair; and the worst class over epochs."""

import numpy as np
import pytest
from agreeing import NAMES, audited_run, history
from ledgers import verdicts
from scipy import stats

from classwise.judging.asymmetry import Asymmetry
from classwise.judging.vulnerable import worst_over_epochs
from classwise.statistics.paired import holm

# ant is taken for bee 30 times of 100, bee for ant 5 times of 50; cat and bee evenly
CONFUSION = np.array([[70, 30, 0], [5, 41, 4], [0, 9, 91]])


def confused():
    cells = [(i, j) for i in range(3) for j in range(3) for _ in range(CONFUSION[i, j])]
    labels, predicted = np.array(cells).T
    return Asymmetry.of(verdicts(np.arange(len(cells)), predicted, labels), NAMES[:3])


def test_every_pair_has_its_test_and_its_interval():
    found = confused()
    assert np.array_equal(found.confusion, CONFUSION)
    first, second = found.pairs
    assert first[:6] == ("ant", "bee", 30, 100, 5, 50)
    assert (second.first, second.second) == ("cat", "bee")  # 9.0 % of 100 and 8.0 % of 50
    plain = []
    for a, n, b, m in ((30, 100, 5, 50), (9, 100, 4, 50)):
        sides = [
            stats.fisher_exact([[a, n - a], [b, m - b]], side).pvalue
            for side in ("less", "greater")
        ]
        plain.append(min(1, 2 * min(sides)))
    # the third pair was never confused, and was looked at all the same
    assert [pair.p_value for pair in found.pairs] == pytest.approx(holm([*plain, 1.0])[:2])
    assert [pair.first for pair in found.uneven] == ["ant"]
    assert first.difference == pytest.approx(0.2)
    assert 0 < first.low < 0.2 < first.high
    assert second.low < 0 < second.high
    assert "ant taken for bee 30.0 %, the reverse 10.0 %" in first.words


def test_mutual_confusion_is_the_mean_of_both_rates():
    found = confused().mutual
    assert found[0, 1] == found[1, 0] == pytest.approx((0.3 + 0.1) / 2)


def test_even_confusions_are_not_called_uneven():
    random, wrong = np.random.default_rng(0), 0
    for _ in range(40):
        labels = np.repeat(np.arange(6), 100)
        predicted = np.where(random.random(600) < 0.5, labels, random.integers(0, 6, 600))
        found = Asymmetry.of(verdicts(np.arange(600), predicted, labels), NAMES)
        wrong += bool(found.uneven)
    assert wrong <= 4  # at most 5 % of 40, and two deviations


class TestOverEpochs:
    ROWS = ([0.1, 0.2, None], [0.3, 0.2, 0.4], [0.3, 0.25, 0.4], [0.4, 0.3, 0.5])

    def test_the_worst_class_of_every_epoch(self, tmp_path):
        run = audited_run(tmp_path / "run", [0.5, 0.6, 0.7])
        history(run, self.ROWS)
        found = worst_over_epochs(run, "pgd-2", NAMES[:3])
        assert found.series == "validation, pgd-10"
        assert found.worst == ("ant", "bee", "bee", "bee")
        assert found.rates == (0.1, 0.2, 0.25, 0.3)
        assert (found.changes, found.settled) == (1, 2)
        assert found.shares == {"bee": 0.75, "ant": 0.25}
        assert "changed once in 4 looks" in found.words

    def test_watched_test_images_come_first(self, tmp_path):
        run = audited_run(tmp_path / "run", [0.5, 0.6, 0.7])
        history(run, self.ROWS, watched=[(2, [0.9, 0.8, 0.1]), (4, [0.9, 0.8, 0.2])])
        found = worst_over_epochs(run, "pgd-2", NAMES[:3])
        assert (found.series, found.epochs) == ("watched, test:pgd-2", (2, 4))
        assert found.changes == 0
        assert "never changed" in found.words

    def test_without_a_history_there_is_nothing_to_say(self, tmp_path):
        run = audited_run(tmp_path / "run", [0.5, 0.6, 0.7])
        assert worst_over_epochs(run, "pgd-2", NAMES[:3]) is None
        (run / "history.jsonl").write_text("no line\n" * 2)
        assert worst_over_epochs(run, "pgd-2", NAMES[:3]) is None
