"""Bad input ends in one line that says what was wrong."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from classwise.errors import ClasswiseError


@contextmanager
def refused(*words: str) -> Iterator[None]:
    with pytest.raises(ClasswiseError) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
