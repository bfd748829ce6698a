"""The look that every audit takes first costs no more than its flags need."""

import pytest
import torch
from torch import nn

from classwise.auditing.first_look import LOOKED_AT, first_look
from classwise.auditing.flags import FEW
from classwise.data.view import View
from classwise.models.subject import Subject


class Asked(nn.Module):
    """Says the class that is written into the first pixel, and counts the images it saw."""

    def __init__(self):
        super().__init__()
        self.images = 0

    def forward(self, x):
        self.images += len(x)
        return -(10 * x[:, 0, 0, :1] - torch.arange(4)).abs()


@pytest.mark.parametrize(("wrong", "probes"), [(0, 0), (9, 0), (10, 3)])
def test_probes_are_tried_only_where_enough_is_wrong_for_a_flag(wrong, probes):
    labels = torch.arange(LOOKED_AT) % 4
    said = torch.where(torch.arange(LOOKED_AT) < wrong, (labels + 2) % 4, labels)
    images = torch.full((LOOKED_AT, 1, 2, 2), 0.5)
    images[:, 0, 0, 0] = said / 10
    model = Asked().eval()
    subject = Subject(model, 4)
    data = View.given(images, labels, 4, None, None, None)
    subject.take(images)
    model.images = 0
    assert first_look(subject, data) == []
    assert model.images == LOOKED_AT + FEW + probes * wrong
