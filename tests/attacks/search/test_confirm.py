"""The second look at what fell: only what the model itself gets wrong stays down."""

import torch

from classwise.attacks.search.engine import Found
from classwise.attacks.search.state import Rows
from classwise.attacks.search.suite import confirm

LABELS = torch.tensor([0, 0, 1, 1, 2])
# what the model itself says of images 0 … 4: wrong, right, wrong by rounding, tied, wrong
SAID = torch.tensor(
    [[1.0, 4.0, 0.0], [4.0, 1.0, 0.0], [4.0 + 4e-15, 4.0, 0.0], [4.0, 4.0, 0.0], [0.0, 5.0, 2.0]],
    dtype=torch.float64,
)


def looked_at(ties=False, fallen=(True,) * 5):
    images = torch.arange(5.0, dtype=torch.float64).view(5, 1, 1, 1)
    none = torch.zeros(5, dtype=torch.float64)
    found = Found(torch.tensor(fallen), images, none.int(), none - 9, torch.zeros_like(LABELS))
    others = torch.tensor([[1, 2], [1, 2], [0, 2], [0, 2], [0, 1]])
    index = torch.arange(5)
    rows = Rows(images, LABELS, index, none, others, index, 0 * LABELS)
    stood_up = confirm(lambda x: SAID[x.flatten().long()], found, rows, 2, ties=ties)
    return found, stood_up


def test_what_the_model_gets_right_or_wrong_by_rounding_only_stands_up():
    found, stood_up = looked_at()
    assert found.fallen.tolist() == [True, False, False, False, True]
    assert stood_up.tolist() == [1, 2, 3]


def test_a_model_whose_scores_are_steps_ties_for_good():
    found, stood_up = looked_at(ties=True)
    assert found.fallen.tolist() == [True, False, False, True, True]
    assert stood_up.tolist() == [1, 2]


def test_classes_and_gaps_are_the_models_own():
    found, _ = looked_at()
    assert found.called.tolist() == [1, 0, 0, 0, 1]
    assert found.gap.tolist() == [-3.0, 3.0, -(4.0 + 4e-15 - 4.0), 0.0, -3.0]


def test_who_did_not_fall_is_not_asked_about():
    found, stood_up = looked_at(fallen=(True, False, False, False, False))
    assert found.fallen.tolist() == [True, False, False, False, False]
    assert found.gap.tolist() == [-3.0, -9.0, -9.0, -9.0, -9.0]
    assert stood_up.tolist() == []
