"""Rectification that takes no memory of its own while a network trains."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu


class Rectifier(nn.ReLU):
    """max(0, x), in place in train mode, for values that nobody else needs.

    In eval mode what went in stays as it was: whoever looks into a trained network with hooks sees
    each layer's own output. Attacks in that mode ask a twin, which works in place as well.

    >>> import torch
    >>> values = torch.tensor([-1.0, 1.0])
    >>> Rectifier().eval()(values).tolist(), values.tolist(), Rectifier()(values) is values
    ([0.0, 1.0], [-1.0, 1.0], True)
    """

    def forward(self, values: Tensor) -> Tensor:
        """Rectify."""
        return relu(values, inplace=self.training)
