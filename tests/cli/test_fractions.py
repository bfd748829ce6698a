"""Means and deviations may be written as the fractions that authors give."""

import pytest

from classwise.cli.printing import normalisation
from classwise.errors import ClasswiseError
from classwise.spelling import parse_call


def test_fractions_are_numbers():
    assert normalisation(None, "127/255,0.5", "128/255,1") == [[127 / 255, 0.5], [128 / 255, 1.0]]


@pytest.mark.parametrize("wrong", ["1/0", "1/", "/2", "1/2/3", "a/2"])
def test_others_are_refused(wrong):
    with pytest.raises(ClasswiseError, match="one number per channel"):
        normalisation(None, wrong, "1")


def test_a_word_with_a_dash_is_asked_to_stand_in_quotes():
    with pytest.raises(ClasswiseError, match="stands in quotes"):
        parse_call("mine:net(name=lite-zero)")
    assert parse_call("mine:net(name='lite-zero')").options == {"name": "lite-zero"}
