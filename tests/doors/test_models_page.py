"""Every line of the table in docs/models.md, run on small files of the same kinds.

The networks are narrower than the page's; names, layouts and options are the page's own.
"""

import gzip
import json
import re
import shlex
import warnings
from pathlib import Path

import numpy as np
import published_nets as nets
import pytest
import torch
from onnx_files import model_of, one_node
from places import ROOT
from safetensors.torch import save_file
from typer.testing import CliRunner
from zoo_libraries import library

import classwise
from classwise.cli import app
from classwise.models import MODELS

PAGE = (ROOT / "docs/models.md").read_text()
LINES = re.findall(r"^\|.*\| `classwise (audit .*)` \|$", PAGE, re.MULTILINE)
NARROW = {
    "resnet18": "resnet18(width=4)",
    "resnet50": "resnet50(width=2)",
    "resnet50-32": "resnet50-32(width=2)",
    "preactresnet18-raw": "preactresnet18-raw(width=4)",
    "wrn-28-10": "wrn(depth=10, widen=1)",
    "wrn-silu": "wrn-silu(depth=10, widen=1)",
}
X = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0)).double()
OWN = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, stride=4), nn.ReLU(), nn.Flatten())
        self.fc = nn.Linear(256, num_classes)

    def forward(self, x):
        return self.fc(self.body(x))


def trained():
    model = Net()
    model.load_state_dict(torch.load("own.pth", weights_only=True))
    return model


def answers(images):
    return images.flatten(1)[:, :10]
"""


def drawn(network, *args, **options):
    weights = nets.Weights()
    network(weights, X, *args, **options)
    return dict(weights)


def madrylab(weights):
    held = {f"module.model.{name}": value for name, value in weights.items()}
    held |= {f"module.attacker.model.{name}": value for name, value in weights.items()}
    for name in ("normalizer", "attacker.normalize"):
        held |= {
            f"module.{name}.new_{what}": torch.full((3, 1, 1), 0.5) for what in ("mean", "std")
        }
    return {"model": held, "epoch": 3}


def published():
    """The files of the page that other people's code wrote."""
    raw = drawn(nets.preact, 4, 10, last_norm=False, raw=True)
    small, counts = (2, 2, 2, 2), (3, 4, 6, 3)
    imagenet = drawn(nets.resnet, nets.bottleneck, counts, 2, 10, imagenet=True)
    return {
        "theirs.pth": drawn(nets.resnet, nets.basic, small, 4, 10),
        "robustbench.pt": {"state_dict": drawn(nets.wide, 10, 1, 10, twice=True)},
        "wong2020.pt": raw,
        "andriushchenko2020.pt": {"last": raw, "best": raw},
        "gowal2020.pt": drawn(nets.deepmind, 10, 1, 10),
        "cifar_linf_8.pt": madrylab(drawn(nets.resnet, nets.bottleneck, counts, 2, 10)),
        "imagenet_linf_4.pt": madrylab(imagenet),
        "salman2020.pt": {f"module.model.{name}": value for name, value in imagenet.items()},
    }


def whole(model):
    """A network in files that are opened without its code."""
    weight = np.random.default_rng(0).normal(size=(3072, 10)).astype(np.float32)
    nodes = [one_node("Flatten", "x", outputs=["f"]), one_node("MatMul", "f", "w")]
    content = model_of(nodes, (3, 32, 32), {"w": weight}).SerializeToString()
    Path("net.onnx").write_bytes(content)
    Path("net.onnx.gz").write_bytes(gzip.compress(content))
    some = torch.rand(2, 3, 32, 32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is old
        torch.jit.save(torch.jit.trace(model, some), "scripted.pt")
    free = {"x": {0: torch.export.Dim("n")}}
    torch.export.save(torch.export.export(model, (some,), dynamic_shapes=free), "exported.pt2")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    home = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.syspath_prepend(home)
        (home / "mynets.py").write_text(OWN)
        import mynets

        state = mynets.Net().state_dict()
        torch.save(state, "own.pth")
        torch.save({"state_dict": state, "state_dict_ema": state}, "several.pth")
        torch.save({n.replace("fc", "classifier"): v for n, v in state.items()}, "renamed.pth")
        for name, held in published().items():
            torch.save(held, name)
        whole(mynets.Net().eval())
        draw = np.random.default_rng(0)
        images = draw.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
        np.savez("images.npz", images=images, labels=np.arange(40) % 10)
        quick = {"epochs": 1, "valid": "0.3", "eps": 0.1, "model": "cnn(width=1)", "quiet": True}
        classwise.train("clean", data="npz:images.npz", out="runs/mine", **quick)
        yield home


def of_the_zoo(line):
    """Write what a line about another library needs."""
    if "timm" in line or "hf:" in line:
        model = library("timm").create_model("resnet10t", num_classes=10)
        torch.save(model.state_dict(), "timms.pth")
        (folder := Path("snapshot")).mkdir(exist_ok=True)
        about = {"architecture": "resnet10t", "num_classes": 10}
        facts = {"num_classes": 10, "input_size": [3, 32, 32], "classifier": "fc"}
        (folder / "config.json").write_text(json.dumps({**about, "pretrained_cfg": facts}))
        save_file(model.state_dict(), "snapshot/model.safetensors")
    elif "torchvision" in line:
        model = library("torchvision").models.squeezenet1_1(num_classes=10)
        torch.save(model.state_dict(), "torchvisions.pth")


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_the_page(line, place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)
    of_the_zoo(line)
    words = [NARROW.get(word, word) for word in shlex.split(line)]
    told = CliRunner().invoke(app, [*words, "--attacks", "clean", "--limit", "20"])
    assert told.exit_code == 0, told.output
    assert "random-weights" not in told.output


def test_the_page_has_its_lines_and_every_model():
    assert len(LINES) == 24
    ours = PAGE.partition("## Our architectures")[2]
    for name in MODELS:
        assert f"`{name}`" in ours or f"`-{name.rpartition('-')[2]}`" in ours, name
