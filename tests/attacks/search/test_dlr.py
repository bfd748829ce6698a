"""The difference-of-logits ratio against its definition."""

import pytest
import torch
from searches import straight_dlr, straight_targeted_dlr

from classwise.attacks.search.dlr import dlr, targeted_dlr


class TestRatio:
    logits = torch.randn(30, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(30) % 5

    def test_against_the_definition(self):
        targets = (self.labels + 2) % 5
        for n in range(30):
            y, t = self.labels[n].item(), targets[n].item()
            assert dlr(self.logits, self.labels)[n].item() == pytest.approx(
                straight_dlr(y)(self.logits[n]).item()
            )
            assert targeted_dlr(self.logits, self.labels, targets)[n].item() == pytest.approx(
                straight_targeted_dlr(y, t)(self.logits[n]).item()
            )

    def test_scaling_and_shifting_logits_change_nothing(self):
        moved = dlr(1000 * self.logits + 7, self.labels)
        torch.testing.assert_close(moved, dlr(self.logits, self.labels))

    def test_three_classes_use_the_third_logit(self):
        z = torch.tensor([[3.0, 1.0, -1.0]])
        assert targeted_dlr(z, torch.tensor([0]), torch.tensor([2])).item() == -1.0

    def test_two_classes_have_the_difference_alone(self):
        z = torch.tensor([[3.0, 1.0]])
        one = torch.tensor([0])
        assert dlr(z, one).item() == targeted_dlr(z, one, 1 - one).item() == -2.0

    def test_equal_logits_are_finite(self):
        assert torch.isfinite(dlr(torch.zeros(1, 4), torch.tensor([2]))).all()
