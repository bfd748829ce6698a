"""The same attacks by other libraries: each function returns the images it moved."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings

import torch
from torch import Tensor, nn

BATCH = 256
SUITE = ("apgd-ce", "apgd-t", "fab-t", "square")


def pyautoattack(
    model: nn.Module, images: Tensor, labels: Tensor, *, eps: float, attacks: tuple[str, ...]
) -> Tensor:
    """Version `standard`, cut down to `attacks`."""
    import pyautoattack as library

    logging.getLogger("auto-attack").setLevel(logging.ERROR)
    suite = library.AutoAttack(model, eps=eps, norm="Linf", seed=0, version="standard")
    suite.attacks_to_run = list(attacks)
    with _silence():
        moved, _ = suite.run_standard_evaluation(images, labels, batch_size=BATCH)
    return moved


def torchattacks(model: nn.Module, images: Tensor, labels: Tensor, *, eps: float) -> Tensor:
    """PGD-20."""
    import torchattacks as library

    attack = library.PGD(model, eps=eps, alpha=eps / 4, steps=20)
    parts = zip(images.split(BATCH), labels.split(BATCH), strict=True)
    with _silence():
        return torch.cat([attack(x, y) for x, y in parts])


def foolbox(model: nn.Module, images: Tensor, labels: Tensor, *, eps: float) -> Tensor:
    """PGD-20."""
    import foolbox as library

    with _silence():
        wrapped = library.PyTorchModel(model, bounds=(0, 1))
        attack = library.attacks.LinfPGD(abs_stepsize=eps / 4, steps=20)
        parts = zip(images.split(BATCH), labels.split(BATCH), strict=True)
        return torch.cat([attack(wrapped, x, y, epsilons=eps)[1] for x, y in parts])


@contextlib.contextmanager
def _silence():  # noqa: ANN202
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
