"""Three CIFAR-10 networks of the preset `minutes`, trained once and kept under `runs/bench`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn

from classwise import Run, load_recipe, open_data, train
from classwise.training.presets import apply_preset


class Net(NamedTuple):
    """A recipe and the model it trains."""

    recipe: str
    model: str


NETS = {
    "undefended resnet9": Net("clean", "resnet9(width=8)"),
    "robust resnet9": Net("at", "resnet9(width=8)"),
    "robust cnn": Net("at", "cnn"),
}


def trained(name: str, cache: Path) -> Run:
    """Train a network, or go on with it, or take it from the cache."""
    net, folder = NETS[name], cache / name.replace(" ", "-")
    recipe, config = apply_preset(
        "minutes", load_recipe(net.recipe), {"data": "cifar10", "model": net.model}
    )
    run = Run(folder)
    if not folder.exists() or run.finished_epochs < config.epochs:
        print(f"training {name}", flush=True)
        run = train(recipe, config, out=folder, resume=folder.exists(), quiet=True)
    return run


def network(name: str, cache: Path) -> nn.Module:
    """The final weights of a network, in eval mode."""
    return trained(name, cache).model("last").eval()


def pictures(count: int) -> tuple[Tensor, Tensor]:
    """Return the first test images and their labels."""
    test = open_data("cifar10").test
    return test.images[:count].float().div_(255), test.labels[:count]
