"""Every sample on one side, by a rule that labels and seed decide."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from classwise.data.splits import rank_within_class, split_indices

EVEN = [("0.15", 100, 15), ("0.02", 5000, 100), ("0.1", 30, 3)]


def labels_of(*sizes, seed=0):
    """So many labels of each class, shuffled."""
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]


class TestSplits:
    unbalanced = labels_of(50, 7, 2, 1, 0, 100)

    @pytest.mark.parametrize("rule", ["0.02", "0.3", "0", "first:1", "last:1", 0.1])
    @pytest.mark.usefixtures("untouched_random_state")
    def test_every_sample_is_on_one_side_in_data_set_order(self, rule):
        train, valid = split_indices(self.unbalanced, rule, seed=4)
        both = torch.cat([train, valid])
        assert torch.equal(both.sort().values, torch.arange(len(self.unbalanced)))
        assert torch.equal(train, train.sort().values)
        assert torch.equal(valid, valid.sort().values)

    def test_a_split_is_a_pure_function_of_labels_and_seed(self):
        one, again = (split_indices(self.unbalanced, 0.3, seed=4)[1] for _ in range(2))
        assert torch.equal(one, again)
        assert not torch.equal(one, split_indices(self.unbalanced, 0.3, seed=5)[1])

    @settings(max_examples=60)
    @given(
        sizes=st.lists(st.integers(0, 120), min_size=1, max_size=6),
        fraction=st.sampled_from(["0.01", "0.02", "0.05", "0.1", "0.15", "0.3", "0.5", "0.9"]),
        seed=st.integers(0, 5),
    )
    def test_a_fraction_takes_its_share_of_every_class_and_empties_none(
        self, sizes, fraction, seed
    ):
        labels = labels_of(*sizes)
        train, valid = split_indices(labels, fraction, seed)
        found = torch.bincount(labels[valid], minlength=len(sizes)).tolist()
        exact = [math.ceil(Fraction(fraction) * size) for size in sizes]
        assert found == [min(n, max(size - 1, 0)) for n, size in zip(exact, sizes, strict=True)]
        left = torch.bincount(labels[train], minlength=len(sizes)).tolist()
        assert all(n >= 1 for n, size in zip(left, sizes, strict=True) if size)

    @pytest.mark.parametrize(
        ("fraction", "size", "share"), [("0.15", 100, 15), ("0.02", 5000, 100)]
    )
    def test_a_share_that_comes_out_even_is_not_rounded_up(self, fraction, size, share):
        assert len(split_indices(torch.zeros(size, dtype=torch.int64), fraction)[1]) == share

    def test_a_random_share_is_not_just_the_first_ones(self):
        labels = torch.zeros(1000, dtype=torch.int64)
        valid = split_indices(labels, 0.3)[1]
        assert 400 < valid.double().mean() < 600

    @pytest.mark.parametrize("seed", [0, 1])
    def test_first_and_last_take_so_many_of_each_class_in_order(self, seed):
        labels = labels_of(9, 5, 30, seed=seed)
        for rule, part in (("first:4", slice(None, 4)), ("last:4", slice(-4, None))):
            expected = []
            for k in range(3):
                expected += (labels == k).nonzero().squeeze(1)[part].tolist()
            assert split_indices(labels, rule, seed)[1].tolist() == sorted(expected)

    @pytest.mark.parametrize(("share", "counts"), [(0.06, (300, 30, 1)), (0.02, (100, 10, 1))])
    def test_first_and_last_may_take_a_share_of_each_class(self, share, counts):
        labels = labels_of(5000, 500, 12)  # CIFAR-10's classes, CIFAR-100's, and a small one
        for kind, part in (("first", slice), ("last", lambda n: slice(-n, None))):
            expected = []
            for k, count in enumerate(counts):
                expected += (labels == k).nonzero().squeeze(1)[part(count)].tolist()
            assert split_indices(labels, f"{kind}:{share}", 1)[1].tolist() == sorted(expected)

    @pytest.mark.parametrize("rule", ["first:3", "last:3"])
    def test_first_and_last_never_empty_a_class_in_silence(self, rule):
        with refused("3"):
            split_indices(labels_of(9, 3, 30), rule)

    @pytest.mark.parametrize("rule", ["first:1", "last:1"])
    def test_a_class_without_samples_does_not_matter_to_first_and_last(self, rule):
        train, valid = split_indices(labels_of(9, 0, 30), rule)
        assert (len(train), len(valid)) == (37, 2)

    @pytest.mark.parametrize(
        "rule", ["1", "1.0", "-0.1", "nan", "half", "", "first", "first:", "first:0", "last:-2",
                 "last:2.5", "last:1.0", "first:.", "middle:3"],
    )  # fmt: skip
    def test_rules_that_make_no_sense_are_refused(self, rule):
        with refused(repr(rule)):
            split_indices(self.unbalanced, rule)

    def test_ranks_are_places_within_the_class(self):
        labels = labels_of(5, 3, 0, 8)
        key = torch.randperm(16, generator=torch.Generator().manual_seed(1))
        found = rank_within_class(labels, key)
        for n in range(16):
            before = [m for m in range(16) if labels[m] == labels[n] and key[m] < key[n]]
            assert found[n] == len(before)
