"""What a run need not wait for before its first batch."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn

from classwise.training.config import TrainConfig
from classwise.training.schedule import make_optimiser

SCRIPT = """
import sys, torch
from classwise import train
images, labels = torch.randint(256, (40, 1, 8, 8), dtype=torch.uint8), torch.arange(40) % 2
train("at(steps=1)", data=(images, labels), model="cnn", epochs=1, out=sys.argv[1], quiet=True)
print(*(name for name in ("torch._dynamo", "scipy", "sympy", "PIL") if name in sys.modules))
"""


def test_a_whole_run_imports_neither_the_compiler_nor_scipy(tmp_path):
    """Each takes about a second, and a run has no use for it."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "run")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said.split() == []


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("sgd", lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=5e-4)),
        ("adam", lambda p: torch.optim.Adam(p, 0.1, weight_decay=5e-4)),
        ("adamw", lambda p: torch.optim.AdamW(p, 0.1, weight_decay=5e-4)),
    ],
)
def test_optimisers_are_torchs_bit_for_bit(name, theirs):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    twin = copy.deepcopy(model)
    ours = make_optimiser(TrainConfig(optimiser=name, lr=0.1, weight_decay=5e-4), model)
    plain = theirs(twin.parameters())
    for number in range(5):
        for net, optimiser in ((model, ours), (twin, plain)):
            optimiser.zero_grad(set_to_none=True)
            net(torch.full((4, 3), float(number))).square().sum().backward()
            optimiser.step()
    assert all(a.equal(b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    assert model.weight.requires_grad
    again = make_optimiser(TrainConfig(optimiser=name, lr=0.1, weight_decay=5e-4), model)
    again.load_state_dict(ours.state_dict())
    found, wanted = again.state_dict()["state"], plain.state_dict()["state"]
    assert found.keys() == wanted.keys()
    for key, values in wanted.items():
        assert all(
            torch.equal(found[key][word], values[word])
            for word in values
            if values[word] is not None
        )
