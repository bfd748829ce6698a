"""Every method keeps every law, and the laws tell methods that do not."""

import pytest
from cases import CASES

from classwise.laws import LAWS


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_method_keeps_every_law(case, law, tmp_path, untouched_random_state):  # noqa: ARG001
    law(case.subject, tmp_path)
