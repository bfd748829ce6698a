"""A model that nobody's memory holds is refused before any is taken."""

import pytest
import torch
from refusals import refused

from classwise.models import build_model


def build(spec, **more):
    return build_model(spec, num_classes=2, channels=1, mean=(0.5,), deviation=(0.5,), **more)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("cnn(width=20000)", "from 1 to 4096"),
        ("wrn(depth=100000)", "from 1 to 4096"),
        ("cnn(width=4096)", "10099982336 weights"),
        ("resnet50(width=4096)", "make it smaller"),
    ],
)
def test_it_is_refused_in_words(spec, words):
    with refused(spec.partition("(")[0], words):
        build(spec)


@pytest.mark.usefixtures("untouched_random_state")
def test_looking_at_its_size_changes_no_weight():
    one = build("cnn(width=16)", seed=5).state_dict()
    other = build("cnn", seed=5).state_dict()  # the same width, by default
    assert all(torch.equal(one[name], other[name]) for name in other)
