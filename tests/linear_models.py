"""A linear model, small enough to be attacked many times."""

import torch
from torch import nn


class Linear(nn.Module):
    """Two pictures' worth of weights: a digit-sized linear model with BatchNorm to disturb."""

    def __init__(self, num_classes=4):
        super().__init__()
        rng = torch.Generator().manual_seed(0)
        self.norm = nn.BatchNorm2d(1)
        self.weight = nn.Parameter(torch.randn(num_classes, 36, generator=rng))

    def forward(self, x):
        return self.norm(x - 0.5).flatten(1) @ self.weight.T
