"""One search alone, and the plain equations that tests of several searches share."""

import torch
from asked import parse_attack
from torch import nn

from classwise.attacks.ball import parse_norm
from classwise.attacks.search.engine import Scene, run_search
from classwise.attacks.search.state import Rows
from classwise.attacks.targets import likeliest_others

COUNT, SIZE = 12, 5


class Curved(nn.Module):
    """Smooth, small, and with pixels that matter differently."""

    def __init__(self, num_classes=4, seed=0):
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        self.a = torch.randn(SIZE * SIZE, 9, generator=rng, dtype=torch.float64)
        self.b = torch.randn(9, num_classes, generator=rng, dtype=torch.float64)

    def forward(self, x):
        return torch.tanh((x - 0.5).flatten(1) @ self.a) @ self.b


def prepared(model, batch, name, radius, norm):
    """Rows and scene as a suite prepares them."""
    (search,) = parse_attack(name).searches
    radii = torch.full((len(batch),), radius, dtype=torch.float64)
    rows = Rows(
        batch.images,
        batch.labels,
        batch.index,
        radii,
        likeliest_others(model(batch.images), batch.labels),
        torch.arange(len(batch)),
        torch.zeros_like(batch.labels),
    )
    return search, rows, Scene(model, parse_norm(norm), 0, 4, width=5)


def searched(model, batch, name, radius, norm):
    """The search alone, with no twin and no second look."""
    search, rows, scene = prepared(model, batch, name, radius, norm)
    return search, rows, scene, run_search(scene, search, rows)


def gradient(model, x, height):
    x = x.clone().requires_grad_()
    value = height(model(x[None])[0])
    return value.item(), torch.autograd.grad(value, x)[0]


def project(x, image, radius, norm):
    offset = x - image
    if norm == "Linf":
        offset = offset.clamp(-radius, radius)
    elif offset.norm() > radius:
        offset = offset * radius / offset.norm()
    return (image + offset).clamp(0, 1)


def uphill(slope, norm):
    return slope.sign() if norm == "Linf" else slope / slope.norm()


def straight_dlr(label):
    def height(z):
        top = sorted(range(len(z)), key=lambda k: -z[k].item())
        other = top[1] if top[0] == label else top[0]
        return (z[other] - z[label]) / (z[top[0]] - z[top[2]])

    return height


def straight_targeted_dlr(label, target):
    def height(z):
        top = sorted(z, key=lambda value: -value.item())
        return (z[target] - z[label]) / (top[0] - (top[2] + top[3]) / 2)

    return height


def teamwork(rounds):
    """Spent evaluations, verdict and image of (last image, evaluations, fell) per round.

    The first round is alone. The others walk in step; the first that breaks the sample, of several
    at a time the one of the likeliest class, ends them all.
    """
    image, spent, fell = rounds[0]
    if fell or len(rounds) == 1:
        return image, spent, fell
    quick = [count for _, count, broke in rounds[1:] if broke]
    end = min(quick, default=None)
    total = spent + sum(count if end is None else end for _, count, _ in rounds[1:])
    if end is None:
        return image, total, False
    winner = next(x for x, count, broke in rounds[1:] if broke and count == end)
    return winner, total, True
