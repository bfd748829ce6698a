"""Data in smaller: every square of pixels becomes its mean."""

import pytest
import torch
from refusals import refused

from classwise.data.sources import fetches, open_data


def test_every_square_becomes_its_mean_rounded_half_up():
    whole, small = open_data("digits"), open_data("pooled(digits, by=2)")
    assert small.name == "pooled(digits, by=2)"
    for part in ("train", "test"):
        large, little = getattr(whole, part), getattr(small, part)
        assert tuple(little.store.shape) == (len(large), 1, 4, 4)
        assert torch.equal(little.labels, large.labels)
        assert (little.class_names, little.mirrored) == (large.class_names, large.mirrored)
        for n in range(0, len(large), 97):
            for y in range(4):
                for x in range(4):
                    square = large.images[n, 0, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2]
                    mean = (2 * int(square.sum()) + 4) // 8
                    assert int(little.images[n, 0, y, x]) == mean


def test_it_stands_inside_and_around_others():
    assert open_data("longtail(pooled(digits, by=4), factor=10)").train.store.shape[2:] == (2, 2)
    assert open_data("pooled(longtail(digits, factor=10), by=1)").train.sizes[-1] == 12
    assert fetches("pooled(hf:mnist, by=2)")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("pooled(digits, by=3)", "8×8 pixels, which squares of 3×3 do not fill"),
        ("pooled(digits, by=0)", "by is 0"),
        ("pooled(digits, by=true)", "by is True"),
        ("pooled(digits, to=4)", "unknown option of pooled 'to'"),
        ("pooled()", "names no data set"),
    ],
)
def test_what_makes_no_sense_is_refused(spec, words):
    with refused(words):
        open_data(spec)
