import pytest
import torch
from torch import nn

from classwise.data.sources import open_data


@pytest.fixture(scope="module")
def digits():
    """A small net that knows its digits, and 200 images it has not seen."""
    source = open_data("digits")
    train, test = source.train, source.test
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    x, y = train.images.float() / 255, train.labels
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    return net.eval(), test.images[:200].float() / 255, test.labels[:200]
