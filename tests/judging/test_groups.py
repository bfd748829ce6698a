"""Groupings: counted by plain loops, classes among them, overlapping or not."""

import math

import numpy as np
import pytest
import torch
from asked import named
from group_scenes import NAMES, some_verdicts
from refusals import refused

from classwise.judging.compare import diff
from classwise.judging.groups import Grouping, grouping_of, of_classes, of_samples
from classwise.judging.rates import GroupReport, Tally
from classwise.judging.reports import class_report
from classwise.statistics.intervals import exact, simultaneous, wilson, worst_interval
from classwise.statistics.paired import mcnemar, paired_interval
from classwise.statistics.worst_change import worst_change_interval


def counted_by_hand(found, entries):
    """(hits, sizes) of every name, one sample and one group at a time."""
    hits, sizes = {}, {}
    for row, sample in enumerate(found.sample.tolist()):
        names = entries[sample]
        for name in [names] if isinstance(names, str) else names or []:
            sizes[name] = sizes.get(name, 0) + 1
            hits[name] = hits.get(name, 0) + int(found.label[row] == found.predicted[row])
    return hits, sizes


@pytest.mark.parametrize("several", [False, True])
def test_counts_are_those_of_a_plain_loop(several):
    draws = np.random.default_rng(1)
    found = some_verdicts()
    names = ["a", "b", "c 2", "c 10"]
    entries = [
        [name for name in names if draws.random() < 0.3]
        if several
        else draws.choice([*names, None], p=[0.6, 0.2, 0.1, 0.05, 0.05])
        for _ in range(300)
    ]
    grouping = of_samples({"camera": entries}, 300)["camera"]
    assert grouping.names == ("a", "b", "c 2", "c 10")
    assert grouping.overlapping == several
    report = class_report([found], named(NAMES), groupings={"camera": grouping})["pgd-2"].by(
        "camera"
    )
    hits, sizes = counted_by_hand(found, entries)
    assert report.sizes == {name: sizes[name] for name in names}
    assert report.by_group == {name: hits[name] / sizes[name] for name in names}
    assert report.tally.outside == sum(1 for entry in entries if not entry)
    rates = [hits[name] / sizes[name] for name in names]
    assert report.worst == min(rates)
    assert report.worst_group == names[rates.index(min(rates))]
    assert report.gap == max(rates) - min(rates)
    mean = sum(rates) / 4
    assert report.spread == pytest.approx(math.sqrt(sum((r - mean) ** 2 for r in rates) / 4))
    h, n = [hits[name] for name in names], [sizes[name] for name in names]
    for got, (low, high) in (
        (report.intervals, wilson(h, n)),
        (report.exact_intervals, exact(h, n)),
        (report.simultaneous_intervals, simultaneous(h, n, overlapping=several)),
    ):
        ends = list(zip(low.tolist(), high.tolist(), strict=True))
        assert got == dict(zip(names, ends, strict=True))
    assert report.worst_interval == tuple(map(float, worst_interval(h, n, overlapping=several)))


def test_the_classes_as_an_attribute_say_what_the_classes_say():
    found = some_verdicts()
    entries = np.empty(300, object)
    entries[found.sample] = [NAMES[label] for label in found.label]
    own = of_samples({"kind": entries}, 300)
    one = class_report([found], named(NAMES), groupings=own)["pgd-2"]
    for by in (one.by("kind"), one.by("class"), one.by()):
        for name in (
            *("by_group", "sizes", "intervals", "exact_intervals", "simultaneous_intervals"),
            *("worst", "worst_group", "worst_interval", "best", "best_group", "spread", "gap"),
            *("expected_worst_if_equal", "equal_p_value"),
        ):
            assert getattr(by, name) == getattr(one, name), name
        assert by.tail(0.4) == one.tail(0.4)
        assert (by.ratio(), by.group_min()) == (one.ratio(), one.group_min())
    assert (one.worst_class, one.by_class) == (one.worst_group, one.by_group)


def test_superclasses_are_pooled_as_a_grouping_and_averaged_in_their_table():
    found = some_verdicts()
    one = class_report([found], named(NAMES, (0, 0, 1), ("pet", "wild")))["pgd-2"]
    pets = found.label < 2
    assert one.by("superclass").by_group["pet"] == found.correct[pets].mean()
    assert one.by_superclass["pet"] == pytest.approx((one.rates[0] + one.rates[1]) / 2)
    assert one.by_superclass["pet"] != pytest.approx(found.correct[pets].mean())
    assert (
        class_report([found], named(NAMES, (0, 0, 1)))["pgd-2"].by("superclass").worst_group in "01"
    )


def test_groups_cross_classes():
    found = some_verdicts()
    halves = of_samples({"half": ["even" if k % 2 == 0 else "odd" for k in range(300)]}, 300)
    report = class_report([found], named(NAMES), groupings=halves)
    assert report.groups == ("class", "half")
    even = found.sample % 2 == 0
    assert report.by("half")["pgd-2"].by_group["even"] == found.correct[even].mean()
    assert {len(set(found.label[part])) for part in (even, ~even)} == {3}


def test_one_group_only_and_groups_without_samples():
    found = some_verdicts()
    one = class_report([found], named(NAMES), groupings=of_samples({"all": ["x"] * 300}, 300))[
        "pgd-2"
    ]
    whole = one.by("all")
    assert (whole.worst, whole.gap, whole.spread) == (one.overall, 0, 0)
    hits = int(found.correct.sum())
    assert whole.worst_interval == pytest.approx([float(end[0]) for end in exact([hits], [300])])

    few = of_samples({"camera": ["front"] * 300 + ["rear"] * 5}, 305)  # the last five: not audited
    report = class_report([found], named(NAMES), groupings=few)
    rear = report.by("camera")["pgd-2"]
    assert rear.by_group == {"front": one.overall, "rear": None}
    assert rear.intervals["rear"] is None
    assert rear.worst_group == "front"
    assert rear.tail(1).classes == ("front",)
    none = of_samples({"camera": [None] * 300 + ["rear"]}, 301)
    nobody = class_report([found], named(NAMES), groupings=none)["pgd-2"].by("camera")
    assert nobody.by_group == {"rear": None}
    for ask in (lambda: nobody.worst, lambda: nobody.gap, lambda: nobody.best_group):
        with refused("none of the audited samples"):
            ask()


def test_a_name_that_is_no_grouping():
    cameras = of_samples({"camera": ["x"] * 300}, 300)
    report = class_report([some_verdicts()], named(NAMES), groupings=cameras)
    with refused("unknown grouping", "'camra'", "'camera'", "class", "--groups FILE.csv"):
        report.by("camra")


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({"camera": ["a"] * 4}, ("groups['camera'] has 4 entries for 5 images",)),
        ({"camera": "abcde"}, ("is str", "give a list")),
        ({"camera": {0: "a"}}, ("is dict",)),
        ({"camera": 3}, ("is int",)),
        ({"camera": [None] * 5}, ("no image into any group",)),
        ({"class": ["a"] * 5}, ("labels decide",)),
        ({"superclass": ["a"] * 5}, ("labels decide",)),
        ({"": ["a"] * 5}, ("no name for a grouping",)),
        ({"two\nlines": ["a"] * 5}, ("no name for a grouping",)),
        ({"camera": ["a\x07"] * 5}, ("no name for a group of 'camera'",)),
        ({"camera": ["x" * 201] * 5}, ("201 letters",)),
    ],
)
def test_what_is_no_grouping_is_refused(groups, words):
    with refused(*words):
        of_samples(groups, 5)


def test_a_name_for_every_image_is_no_grouping():
    with refused("1001 groups", "1000 are the most"):
        of_samples({"file": [f"{k}.png" for k in range(1001)]}, 1001)


def test_pairs_that_cannot_be():
    for member, group in (([0, 0], [0, 0]), ([0], [1]), ([0], [-1]), ([-1], [0])):
        with refused("'g'"):
            Grouping("g", ("a",), "sample", np.array(member), np.array(group))


def test_what_others_write_for_nothing_is_in_no_group():
    class NAType:
        pass

    entries = [None, "", "  ", float("nan"), NAType(), [], ["", None], 7, np.str_("b"), {"b", "7"}]
    found = of_samples({"track": entries}, len(entries))["track"]
    assert (found.names, found.member.tolist()) == (("7", "b"), [7, 8, 9, 9])
    assert of_samples({"t": torch.tensor([2, 10, 2])}, 3)["t"].names == ("2", "10")
    assert of_samples({"t": np.array(["b  c", "a"])}, 2)["t"].names == ("a", "b c")


class TestOverlapping:
    """Groups that share images are not independent: their intervals may not assume it."""

    def test_bonferroni_takes_the_place_of_sidak(self):
        hits, sizes = [50, 30, 0], [100, 90, 0]
        low, high = simultaneous(hits, sizes, 0.95, overlapping=True)
        plain_low, plain_high = exact(hits[:2], sizes[:2], 0.975)
        assert low[:2].tolist() == pytest.approx(plain_low.tolist())
        assert high[:2].tolist() == pytest.approx(plain_high.tolist())
        assert math.isnan(low[2])

    def test_the_worst_of_equal_copies_is_covered(self):
        """All groups hold the same images, the most that groups can depend on each other."""
        draws = np.random.default_rng(0)
        hits = np.repeat(draws.binomial(50, 0.3, 2000)[:, None], 5, 1)
        low, high = worst_interval(hits, np.full((2000, 5), 50), 0.9, overlapping=True)
        assert ((low <= 0.3) & (high >= 0.3)).mean() >= 0.9
        low, high = simultaneous(hits, np.full((2000, 5), 50), 0.9, overlapping=True)
        assert ((low <= 0.3) & (high >= 0.3)).all(1).mean() >= 0.9

    def test_one_group_is_the_exact_interval(self):
        low, high = worst_interval([5], [20], 0.9, overlapping=True)
        assert (float(low), float(high)) == pytest.approx(
            [float(e[0]) for e in exact([5], [20], 0.9)]
        )


class TestDifference:
    def pair(self):
        first, second = some_verdicts(seed=3, right=0.5), some_verdicts(seed=3, right=0.7)
        return first, second

    @pytest.mark.parametrize("several", [False, True])
    def test_each_group_is_compared_image_by_image(self, several):
        first, second = self.pair()
        entries = [["x", "y"] if several and k % 3 == 0 else "xyz"[k % 3] for k in range(300)]
        entries[7] = None
        grouping = of_samples({"camera": entries}, 300)["camera"]
        found = diff(first, second, NAMES, grouping=grouping, draws=200)
        right = dict(zip(first.sample.tolist(), first.correct.tolist(), strict=True))
        now = dict(zip(second.sample.tolist(), second.correct.tolist(), strict=True))
        for k, name in enumerate(found.class_names):
            inside = [s for s in range(300) if entries[s] and name in entries[s]]
            assert found.sizes[k] == len(inside)
            assert found.lost[k] == sum(right[s] and not now[s] for s in inside)
            assert found.won[k] == sum(now[s] and not right[s] for s in inside)
            assert found.hits[k] == sum(right[s] for s in inside)
        assert found.p_values.tolist() == mcnemar(found.lost, found.won).tolist()
        low, high = paired_interval(found.lost, found.won, found.sizes)
        assert [end.tolist() for end in found.intervals] == [low.tolist(), high.tolist()]
        sure = worst_change_interval(found.sizes, found.hits, found.lost, found.won)
        assert found.worst[1:] == sure
        assert (found.drawn_worst is None) == several
        by_class = diff(first, second, NAMES, draws=200)
        assert found.overall == by_class.overall, "all images count, in a group or not"
        before = min((found.hits / found.sizes).tolist())
        after = min(((found.hits - found.lost + found.won) / found.sizes).tolist())
        assert found.worst.difference == pytest.approx(after - before)
        assert "of camera" in found.verdict
        assert "worst group" in str(found)

    def test_the_classes_as_a_grouping_give_the_same_difference(self):
        first, second = self.pair()
        by_class = diff(first, second, NAMES, draws=300)
        again = diff(first, second, NAMES, grouping=of_classes(NAMES)["class"], draws=300)
        assert str(again) == str(by_class)
        assert again.worst == by_class.worst
        assert again.sizes.tolist() == by_class.sizes.tolist()

    def test_nobody_in_a_group(self):
        first, second = self.pair()
        empty = grouping_of("camera", [(900, ["x"])])
        with refused("none of the images that both saw", "'camera'"):
            diff(first, second, NAMES, grouping=empty, draws=10)


def test_counts_in_another_order():
    seen = Tally(("a", "b"), np.array([1, 2]), np.array([3, 4]), True, 5)
    other = seen.under(["c", "b", "a"])
    assert other.sizes.tolist() == [0, 4, 3]
    assert other.hits.tolist() == [0, 2, 1]
    assert (other.overlapping, other.outside) == (True, 5)
    assert GroupReport("g", "clean", other).worst_group == "a"
