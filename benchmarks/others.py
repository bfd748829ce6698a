"""The same attacks by other libraries: each function returns the images it moved.

They run in a process of their own, as their users run them: `classwise` tells the C library to keep
freed memory, and in one process they would profit from it.
"""

from __future__ import annotations

import contextlib
import io
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from nets import network, pictures
from strangers import LARGE, large_lesson
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

BATCH = 256
SUITE = ("apgd-ce", "apgd-t", "fab-t", "square")


def theirs(library: str, net: str, home: Path, count: int, **options: Any) -> tuple[Tensor, float]:
    """Images moved by a library, and the seconds it took in its own process."""
    moved, seconds = _process().submit(_run, library, net, home, count, options).result()
    return torch.from_numpy(moved), seconds


@cache
def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


def _run(library: str, net: str, home: Path, count: int, options: Any) -> tuple[Any, float]:
    model, images, labels = _loaded(net, home, count)
    function: Callable[..., Tensor] = globals()[library]
    began = time.perf_counter()
    moved = function(model, images, labels, **options)
    return moved.detach().numpy(), time.perf_counter() - began


@lru_cache
def _loaded(net: str, home: Path, count: int) -> tuple[nn.Module, Tensor, Tensor]:
    return large_lesson(count) if net == LARGE else (network(net, home), *pictures(count))


def pyautoattack(
    model: nn.Module, images: Tensor, labels: Tensor, *, eps: float, attacks: tuple[str, ...]
) -> Tensor:
    """Version `standard`, cut down to `attacks`."""
    import pyautoattack as library

    logging.getLogger("auto-attack").setLevel(logging.ERROR)
    suite = library.AutoAttack(model, eps=eps, norm="Linf", seed=0, version="standard")
    suite.attacks_to_run = list(attacks)
    with _silence():
        moved: Tensor = suite.run_standard_evaluation(images, labels, batch_size=BATCH)[0]
    return moved


def torchattacks(model: nn.Module, images: Tensor, labels: Tensor, *, eps: float) -> Tensor:
    """PGD-20."""
    import torchattacks as library

    attack = library.PGD(model, eps=eps, alpha=eps / 4, steps=20)
    parts = zip(torch.split(images, BATCH), torch.split(labels, BATCH), strict=True)
    with _silence():
        return torch.cat([attack(x, y) for x, y in parts])


def foolbox(model: nn.Module, images: Tensor, labels: Tensor, *, eps: float) -> Tensor:
    """PGD-20."""
    import foolbox as library
    from foolbox.models.pytorch import PyTorchModel

    with _silence():
        wrapped = PyTorchModel(model, bounds=(0, 1))
        attack = library.attacks.LinfPGD(abs_stepsize=eps / 4, steps=20)
        parts = zip(torch.split(images, BATCH), torch.split(labels, BATCH), strict=True)
        return torch.cat([attack(wrapped, x, y, epsilons=eps)[1] for x, y in parts])


def plain(
    model: nn.Module, images: Tensor, labels: Tensor, *, eps: float, steps: int, width: int
) -> Tensor:
    """PGD as one writes it down: a random start, signs, two clamps."""
    found = []
    for x, y in zip(torch.split(images, width), torch.split(labels, width), strict=True):
        now = (x + eps * (2 * torch.rand_like(x) - 1)).clamp(0, 1)
        for _ in range(steps):
            now.requires_grad_()
            (slope,) = torch.autograd.grad(cross_entropy(model(now), y), now)
            now = now.detach() + eps / 4 * slope.sign()
            now = torch.min(torch.max(now, x - eps), x + eps).clamp(0, 1)
        with torch.no_grad():
            model(x), model(now)  # right before, and after?
        found.append(now)
    return torch.cat(found)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
