"""Side by side with the reference implementation of AutoAttack, sample by sample.

`benchmarks/attacks.py` does the same on CIFAR-10 networks with all steps and queries.
"""

import logging

import pyautoattack
import pytest
import torch
from asked import attacked, parse_attack
from scipy.stats import binomtest
from torch import nn

from classwise.attacks import PGD
from classwise.attacks.ball import parse_norm
from classwise.data.sources import open_data
from classwise.types import Batch

COUNT = 200
RADII = {"Linf": 0.1, "L2": 0.5}  # about half of the digits fall
STEPS, QUERIES = 40, 300


@pytest.fixture(scope="module", params=["undefended", "adversarially trained"])
def digits(request):
    source = open_data("digits")
    x, y = source.train.images.float() / 255, source.train.labels
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2),
            nn.ReLU(), nn.Flatten(), nn.Linear(32, 10),
        )  # fmt: skip
    attack = PGD(net, eps=RADII["Linf"], alpha=RADII["Linf"] / 2, steps=3)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(60):
        moved = attack(x, y) if request.param != "undefended" else x
        optimiser.zero_grad()
        nn.functional.cross_entropy(net.train()(moved), y).backward()
        optimiser.step()
    test = source.test
    return net.eval(), test.images[:COUNT].float() / 255, test.labels[:COUNT]


def reference(digits, norm, attacks, version="standard"):
    net, x, y = digits
    logging.getLogger("auto-attack").setLevel(logging.CRITICAL)
    suite = pyautoattack.AutoAttack(net, eps=RADII[norm], norm=norm, seed=0, version=version)
    suite.attacks_to_run = list(attacks)
    suite.apgd.n_iter = suite.apgd_targeted.n_iter = suite.fab.n_iter = STEPS
    suite.square.n_queries = QUERIES
    moved, _ = suite.run_standard_evaluation(x, y, batch_size=COUNT)
    with torch.no_grad():
        return net(moved).argmax(1) == y


@pytest.mark.filterwarnings("ignore")  # the reference's own
@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize(
    "attacks",
    [("apgd-ce",), ("apgd-t",), ("fab-t",), ("square",), ("apgd-ce", "apgd-t", "fab-t", "square")],
    ids=["apgd-ce", "apgd-t", "fab-t", "square", "autoattack"],
)
def test_what_the_reference_breaks_we_break(digits, norm, attacks):
    net, x, y = digits
    names = [
        f"square(queries={QUERIES})" if one == "square" else f"{one}(steps={STEPS})"
        for one in attacks
    ]
    found = attacked(
        net,
        Batch(x, y, torch.arange(COUNT)),
        parse_attack(f"suite({','.join(names)})"),
        num_classes=10,
        radius=RADII[norm],
        ball=parse_norm(norm),
    )
    ours, theirs = found.predicted == y, reference(digits, norm, attacks)
    only_theirs, only_ours = int((ours & ~theirs).sum()), int((~ours & theirs).sum())
    assert 0.05 < theirs.float().mean() < 0.95  # a comparison where nothing can fall says nothing
    assert only_theirs <= 0.01 * COUNT
    if only_theirs:
        assert binomtest(only_theirs, only_theirs + only_ours, alternative="greater").pvalue > 0.05
    fallen = ~ours
    with torch.no_grad():
        assert (net(found.images[fallen]).argmax(1) != y[fallen]).all()
    offset = (found.images - x).double().flatten(1)
    length = offset.abs().amax(1) if norm == "Linf" else offset.norm(dim=1)
    assert length.max() <= RADII[norm] + 1e-6
    assert found.images.min() >= 0
    assert found.images.max() <= 1


class Noisy(nn.Module):
    """A net that adds noise to its images."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x + 0.1 * torch.randn_like(x))


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_draws_random_numbers_is_broken_as_often(digits):
    net, x, y = digits
    noisy = Noisy(net).eval()
    attacks = ("apgd-ce", "apgd-dlr")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = reference((noisy, x, y), "Linf", attacks, "rand").float().mean()
        found = attacked(
            noisy,
            Batch(x, y, torch.arange(COUNT)),
            parse_attack(f"suite({','.join(f'{one}(steps={STEPS},eot=20)' for one in attacks)})"),
            num_classes=10,
            radius=RADII["Linf"],
            ball=parse_norm("Linf"),
        )
    ours = (found.predicted == y).float().mean()
    assert 0.02 < theirs < 0.95
    assert ours <= theirs + 0.05
