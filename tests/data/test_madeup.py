"""Made-up images: the names of real classes, the same everywhere, and something to learn."""

import os

import pytest
import torch
from refusals import refused

from classwise.data.madeup import GROUPS_100, NAMES, NAMES_100, madeup
from classwise.data.sources import open_data


def test_they_have_the_classes_of_the_data_they_are_named_after():
    source = open_data("madeup(cifar100, size=4, train=2, test=1)")
    assert source.train.num_classes == 100
    assert list(source.train.class_names) == sorted(source.train.class_names)
    assert torch.equal(source.train.sizes, torch.full((100,), 2))
    assert len(source.test) == 100
    above = source.train.superclass_of
    assert torch.bincount(torch.tensor(above)).tolist() == [5] * 20
    seal = source.train.class_names.index("seal")
    assert source.train.superclass_names[above[seal]] == "aquatic_mammals"
    for name, words in NAMES.items():
        assert madeup(name, size=2, train=1, test=1).train.class_names == words


@pytest.mark.skipif(not os.environ.get("CLASSWISE_DATA"), reason="needs the official files")
def test_the_names_are_those_of_the_official_files():
    real = open_data("cifar100").train
    assert (real.class_names, real.superclass_names) == (NAMES_100, tuple(GROUPS_100))
    assert real.superclass_of == madeup("cifar100", train=1).train.superclass_of


def test_they_are_the_same_every_time_and_differ_between_parts():
    one, other = madeup("digits"), madeup("digits")
    assert one.train.content_hash == other.train.content_hash
    few = madeup("digits", train=8)
    assert not torch.equal(few.train.images, few.test.images)
    assert not one.train.mirrored
    assert one.train.channels == 1
    assert madeup("12").train.class_names[-1] == "class 11"


def test_the_nearest_class_mean_knows_them():
    source = madeup("cifar10")
    train, test = (part.images.float().flatten(1) for part in (source.train, source.test))
    means = torch.stack([train[source.train.labels == k].mean(0) for k in range(10)])
    assert (torch.cdist(test, means).argmin(1) == source.test.labels).float().mean() > 0.9


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("madeup(cifar11)", "did you mean 'cifar10'"),
        ("madeup(cifar10, size=1000)", "size is 1000; give a number from 1 to 64"),
        ("madeup(cifar10, train=true)", "train is True"),
        ("madeup(1)", "give 2 to 1000 classes"),
        ("madeup(99999999999999999999)", "give 2 to 1000 classes"),
        ("madeup(cifar10, side=8)", "unknown option of madeup 'side'; did you mean 'size'"),
        ("madeup()", "names no data set; write madeup(NAME, option=value)"),
        ("madeup", "names no data set"),
    ],
)
def test_what_makes_no_sense_is_refused(spec, words):
    with refused(words):
        open_data(spec)
