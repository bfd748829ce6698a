"""The difference between two audits, class by class."""

import numpy as np
import pytest
from ledgers import ABOUT, stamp, verdicts
from pairs import NAMES, pair
from refusals import refused
from typer.testing import CliRunner

from classwise.cli import app
from classwise.judging.audits import read_ledger
from classwise.judging.compare import diff
from classwise.judging.samples import diff_samples, read_samples
from classwise.record.ledger import Ledger
from classwise.record.remarks import write_remarks
from classwise.statistics.worst_change import worst_change_interval


class TestDiff:
    def test_clear_changes_are_named_and_small_ones_left_undecided(self):
        random = np.random.default_rng(3)
        first, second = pair(random, [0.3, 0.8, 0.5], [0.6, 0.5, 0.505], 200)
        found = diff(first, second, NAMES)
        assert (found.better, found.worse, found.undecided) == (("a",), ("b",), ("c",))
        assert found.verdict == "1 class better, 1 worse, 1 undecided"
        assert found.drawn_worst.low > 0
        assert found.worst.low < found.worst.difference < found.worst.high
        for k in range(3):
            mine = first.label == k
            change = second.correct[mine].mean() - first.correct[mine].mean()
            assert found.by_class[k] == pytest.approx(change)
            assert found.intervals[0][k] <= change <= found.intervals[1][k]
        for word in ("1 class better", "overall", "worst class +", "better: a", "worse: b"):
            assert word in str(found)

    def test_turned_around_better_is_worse(self):
        first, second = pair(np.random.default_rng(3), [0.3, 0.8, 0.5], [0.6, 0.5, 0.5], 200)
        there, back = diff(first, second, NAMES), diff(second, first, NAMES)
        assert (there.better, there.worse) == (back.worse, back.better)
        assert there.overall.difference == -back.overall.difference

    def test_a_model_against_itself_is_undecided_everywhere(self):
        first, _ = pair(np.random.default_rng(0), [0.3, 0.8, 0.5], [1, 1, 1], 20)
        found = diff(first, first, NAMES)
        assert found.verdict == "0 classes better, 0 worse, 3 undecided"
        assert found.overall == (0, 0, 0)
        assert found.drawn_worst == (0, 0, 0)
        assert found.worst.difference == 0

    def test_only_shared_images_count_whatever_their_order(self):
        first = verdicts([4, 2, 0, 9], predicted=[1, 0, 0, 0])
        second = verdicts([0, 2, 4, 7], predicted=[0, 2, 0, 1])
        found = diff(first, second, NAMES)
        assert found.unpaired == 2
        assert found.sizes.tolist() == [1, 1, 1]
        assert found.won.tolist() == [0, 0, 1]
        assert found.lost.tolist() == [0, 1, 0]

    def test_other_data_are_refused(self):
        with refused("share no image"):
            diff(verdicts([0]), verdicts([1]), NAMES)
        with refused("labels"):
            diff(verdicts([0], labels=[0]), verdicts([0], labels=[1]), NAMES)
        with refused("level"):
            diff(verdicts([0]), verdicts([0]), NAMES, level=95)

    @pytest.mark.parametrize(
        ("before", "after", "n"),
        [
            ([0.2, 0.5, 0.6], [0.3, 0.45, 0.6], 150),
            ([0.5] * 10, [0.5] * 10, 100),
            ([0.5] * 10, [0.55] * 10, 100),
            ([0.5] * 10, [0.4, *[0.5] * 9], 100),  # the bootstrap holds this one in 64 of 100
            ([0.4, *[0.5] * 9], [0.5] * 10, 100),
            ([0.5, 0.5], [0.4, 0.6], 300),
        ],
    )
    def test_the_sure_worst_class_interval_holds_the_truth(self, before, after, n):
        random, drawn = np.random.default_rng(5), []
        truth = min(after) - min(before)
        for _ in range(80):
            first, second = pair(random, before, after, n)
            drawn.append([
                np.bincount(first.label[mask], minlength=len(before))
                for mask in (
                    first.correct,
                    first.correct & ~second.correct,
                    ~first.correct & second.correct,
                )
            ])  # fmt: skip
        hits, lost, won = np.array(drawn).transpose(1, 0, 2)
        low, high = worst_change_interval(np.full(len(before), n), hits, lost, won)
        assert ((low <= truth) & (truth <= high)).mean() >= 0.95

    def test_the_worst_class_has_the_interval_that_is_printed_and_right(self):
        found = diff(*pair(np.random.default_rng(3), [0.5] * 3, [0.3, 0.5, 0.5], 100), NAMES)
        sure = worst_change_interval(found.sizes, found.hits, found.lost, found.won)
        assert found.worst[1:] == found.worst_sure[1:] == sure
        assert found.drawn_worst.difference == found.worst.difference
        assert f"{100 * found.worst.low:+.1f} to {100 * found.worst.high:+.1f}" in str(found)


def diff_runs(first, second, attacks=()):
    return diff_samples(read_samples(first), read_samples(second), attacks=attacks)


class TestRuns:
    def runs(self, tmp_path, **other):
        random = np.random.default_rng(3)
        first, second = pair(random, [0.3, 0.8, 0.5], [0.6, 0.5, 0.505], 100)
        Ledger(tmp_path / "a", ABOUT).append(first, stamp(model="m1"))
        Ledger(tmp_path / "b", ABOUT).append(second, stamp(**{"model": "m2", **other}))
        return tmp_path / "a", tmp_path / "b"

    def test_two_ledgers_are_compared_under_what_they_share(self, tmp_path):
        a, b = self.runs(tmp_path)
        Ledger(a, ABOUT).append(verdicts(range(9), condition="clean"), stamp(attack="clean"))
        (found,) = diff_runs(a, b)
        assert found.condition == "pgd-2"
        assert found.better == ("a",)
        with refused("not audited under clean"):
            diff_runs(a, b, attacks=("clean",))
        with refused("unknown condition", "pgd-9", "classwise audit"):
            diff_runs(a, b, attacks=("pgd-9",))

    def test_what_must_be_known_of_either_is_said(self, tmp_path):
        a, b = self.runs(tmp_path)
        kept = {"probed": None, "black_box": False, "notes": {}}
        write_remarks(b, "m2", seen={"d1": ["random: two passes differ"]}, **kept)
        write_remarks(a, "m1", seen={"d2": ["random: on other data"]}, **kept)
        told = CliRunner().invoke(app, ["diff", str(a), str(b)])
        assert told.exit_code == 0, told.output
        assert "pgd-2" in told.output
        assert f"{b}: random: two passes differ" in told.output
        assert "on other data" not in told.output

    def test_another_radius_is_no_pair(self, tmp_path):
        with refused("no condition in common"):
            diff_runs(*self.runs(tmp_path, eps=0.2))

    def test_other_data_are_no_pair(self, tmp_path):
        with refused("different data"):
            diff_runs(*self.runs(tmp_path, data="d2"))

    def test_weights_must_be_told_apart(self, tmp_path):
        a, _ = self.runs(tmp_path)
        Ledger(a, ABOUT).append(verdicts(range(9)), stamp("best"))
        assert read_samples(a).weights == "last"
        assert read_samples(a, weights="best").conditions["pgd-2"].sample.tolist() == [*range(9)]
        with refused("unknown weights", "ema", "best, last"):
            read_samples(a, weights="ema")
        with refused("split"):
            read_samples(a, split="train")
        with refused("not a folder"):
            read_samples(tmp_path / "gone")

    def test_weights_of_the_same_name(self, tmp_path):
        a, b = self.runs(tmp_path)
        Ledger(a, ABOUT).append(read_samples(b).conditions["pgd-2"], stamp(model="later"))
        with refused("last@later", "last@m1"):
            read_samples(a)
        told = CliRunner().invoke(app, ["diff", str(a), str(b), "--weights", "last@later,last"])
        assert told.exit_code == 0, told.output
        told = CliRunner().invoke(app, ["diff", str(a), str(b), "--weights", "x,y,z"])
        assert told.exit_code == 2
        assert "FIRST,SECOND" in told.output

    def test_data_of_the_same_name(self, tmp_path):
        a, _ = self.runs(tmp_path)
        other = {"recipe_name": "other", "data": {"name": "y", "class_names": ["x", "y", "z"]}}
        Ledger(a, other).append(verdicts(range(9)), stamp(data="later"))
        with refused("test@d1", "test@later"):
            read_samples(a)
        assert read_samples(a, split="test@later").class_names == ("x", "y", "z")
        assert read_samples(a, split="test@d1").class_names == ("a", "b", "c")
        names = {one.split: one.report["pgd-2"].class_names for one in read_ledger(a)}
        assert names == {"test@d1": ("a", "b", "c"), "test@later": ("x", "y", "z")}
        assert {one.recipe for one in read_ledger(a)} == {"made up", "other"}

    def test_an_attack_at_two_radii_must_be_named_in_full(self, tmp_path):
        a, _ = self.runs(tmp_path)
        Ledger(a, ABOUT).append(verdicts(range(9)), stamp(eps=0.2))
        stored = read_samples(a)
        assert len(stored.conditions) == 2
        with refused("2 audits under pgd-2", "eps="):
            stored.label("pgd-2")
        assert all(stored.label(label) == label for label in stored.conditions)
