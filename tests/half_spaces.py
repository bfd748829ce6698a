"""A model whose smoothed self is known, and images at known distances from its boundary."""

import torch
from torch import nn

from classwise.attacks.names import parse_condition
from classwise.attacks.threat import Threat
from classwise.auditing.plan import Plan
from classwise.auditing.run import run_audit
from classwise.data.view import View
from classwise.models.subject import Subject


class HalfSpace(nn.Module):
    """Class 1 where w·x > ½·w·1; the way to the plane is the radius of its smoothed self."""

    def __init__(self):
        super().__init__()
        rng = torch.Generator().manual_seed(5)
        way = torch.randn(1, 1, 6, 6, generator=rng).double()
        self.way = nn.Parameter(way / way.norm())

    def forward(self, images):
        height = ((images - 0.5) * self.way).sum((1, 2, 3))
        return torch.stack([-height, height], 1)


def at_distances(model, distances):
    """Images of class 1 so far from the plane, otherwise anywhere."""
    rng = torch.Generator().manual_seed(6)
    grey = 0.5 + 0.05 * torch.randn(len(distances), 1, 6, 6, generator=rng).double()
    way = model.way.detach()
    height = ((grey - 0.5) * way).sum((1, 2, 3), keepdim=True)
    return grey + (torch.as_tensor(distances).view(-1, 1, 1, 1) - height) * way


def judged(model, images, labels, attack, eps, seed=0, width=512):
    data = View.given(images, labels, 2, ("a", "b"))
    condition = parse_condition(attack, Threat.of(eps, "L2"), seed)
    return run_audit(Plan(Subject(model, 2, width), data, (condition,)))[0]
