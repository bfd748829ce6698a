"""Reading a value says nothing on the way: Python's advice on style is not for our users."""

import warnings

import pytest
from hostile import refusal

from classwise.spelling import parse_call, parse_value


@pytest.mark.parametrize("text", ["0x1for x in y", "1if 2else 3", "'\\d'", "1is 1"])
def test_no_warning_reaches_the_terminal(text):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        parse_value(text)
        refusal(lambda: parse_call(f"a(b={text})"), text)
    assert [str(one.message) for one in seen] == []
