"""CIFAR-10 networks of the preset `minutes`, trained once and kept under `runs/bench`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from classwise import Run, load_recipe, open_data, train
from classwise.data.dataset import Dataset
from classwise.data.splits import balanced_subset
from classwise.models import names_own_model
from classwise.training.build import rows_to_use
from classwise.training.presets import apply_preset


class Net(NamedTuple):
    """A recipe, the model it trains, and what differs from the preset."""

    recipe: str
    model: str
    options: Mapping[str, Any] = {}

    @property
    def own(self) -> str | None:
        """Its name where it is not one of the package."""
        return self.model if names_own_model(self.model) else None


NETS = {
    "undefended resnet9": Net("clean", "resnet9(width=8)"),
    "robust resnet9": Net("at", "resnet9(width=8)"),
    "robust cnn": Net("at", "cnn"),
}
# What training is measured on: it stands on about a third of the images it was trained on.
STEPPED = "robust resnet9 of width 16"
_FEW = {"subset": 3000, "valid": "first:20"}
# Networks as other people bring them: residual, small, without BatchNorm.
STRANGERS = {
    "residual, scaled": Net("at", "strangers:scaled", {**_FEW, "lr": 0.05}),
    "residual, in groups": Net("at", "strangers:grouped", {**_FEW, "lr": 0.05}),
}
_LONGER = {"batch_size": 64, "epochs": 25}
KNOWN = {**NETS, **STRANGERS, STEPPED: Net("at(steps=2)", "resnet9(width=16)", {**_FEW, **_LONGER})}


def trained(name: str, cache: Path) -> Run:
    """Train a network, or go on with it, or take it from the cache."""
    net, folder = KNOWN[name], cache / name.replace(", ", "-").replace(" ", "-")
    options = {"data": "cifar10", "model": net.model, **net.options}
    recipe, config = apply_preset("minutes", load_recipe(net.recipe), options)
    run = Run(folder, net.own)
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


def lessons(data: Dataset, run: Run, count: int) -> Tensor:
    """Rows of some training images that a network was trained on, of all classes alike."""
    rows = rows_to_use(data, run.config)[0]
    return rows[balanced_subset(data.labels[rows], count, seed=0)]
