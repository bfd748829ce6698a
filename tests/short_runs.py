"""Training a few steps, for the laws of single methods."""

from pathlib import Path

import torch
from typer.testing import CliRunner

from classwise import cli
from classwise.record.tensors import read_tensors
from classwise.training.config import TrainConfig
from classwise.training.loop import train

QUICK = {
    "eps": 0.2,
    "epochs": 2,
    "batch_size": 16,
    "lr": 0.05,
    "valid": "0.3",
    "model": "cnn(width=2)",
    "valid_attack": "pgd-2",
}


def short_run(folder: Path, recipe, source, **options):
    return train(recipe, TrainConfig(**{**QUICK, **options}), out=folder, source=source, quiet=True)


def weights_of(run, name="last"):
    return read_tensors(run.weights_path(name))[0]


def same_weights(one, other) -> bool:
    return same_tensors(weights_of(one), weights_of(other))


def same_tensors(one, other) -> bool:
    return set(one) == set(other) and all(torch.equal(one[n], other[n]) for n in one)


def moved(one, other):
    return {name for name in one if not torch.equal(one[name], other[name])}


def run_cli(*words):
    return CliRunner().invoke(cli.app, list(words))
