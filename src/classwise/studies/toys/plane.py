"""Three classes in a plane, trained for real: what targets do to two that overlap.

FAIR-TAT argues with a sketch of such a scene (Medi et al., 2024, figure 2). Here its points are
images of 1×2 pixels, and the training is that of every other run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor, nn

from classwise.data.dataset import Dataset, DataSource
from classwise.doors.audit import audit
from classwise.draws import Draws
from classwise.training.config import TrainConfig
from classwise.training.loop import train

# Blue and red overlap, green lies apart; in this order pictures have them in their own colours.
NAMES = ("blue", "red", "green")
GREEN = NAMES.index("green")
CENTRES = ((0.42, 0.35), (0.58, 0.35), (0.5, 0.7))
DEVIATION = 0.08  # of every class in both directions
METHODS = {
    "standard": "clean",
    "untargeted": "at(steps=4, step=eps/2)",
    "targeted, uniform": "at(steps=4, step=eps/2)+fairtat(odds=uniform)",
    "targeted, C_FPS": "at(steps=4, step=eps/2)+fairtat",
}
_TESTED = 500  # points of each class
_SIDE = 31  # places of the picture along each axis


@dataclass(frozen=True)
class Scene:
    """How much is drawn, how strong the attack is, and how long training takes."""

    eps: float = 0.08  # half of the way from red to blue
    images: int = 200  # of each class, to train on
    epochs: int = 12

    def source(self, seed: int) -> DataSource:
        """The points as images; other ones to train on for every seed, the same to test."""
        train, test = _points(self.images, "train", seed), _points(_TESTED, "test", 0)
        return DataSource("plane", train, test)


@dataclass(frozen=True)
class Trained:
    """What a method came to with one seed; rates are in the order of NAMES."""

    method: str
    seed: int
    clean: tuple[float, ...]
    robust: tuple[float, ...]
    to_green: float  # share of red and blue points that the attack makes green
    boundary: float  # height at which green begins, half way between red and blue
    regions: tuple[int, ...]  # the class of every place, row by row from below


def _points(count: int, part: str, seed: int) -> Dataset:
    index = torch.arange(3 * count)
    labels = index % 3
    noise = Draws(seed, f"plane {part}").normal(index, (2,))
    places = torch.tensor(CENTRES)[labels] + DEVIATION * noise
    pixels = (places.clamp(0, 1) * 255).round().to(torch.uint8)
    return Dataset(pixels.view(-1, 1, 1, 2), labels, NAMES, mirrored=False, moved=0)


class _Centred(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 4 * (x - 0.5)


def network(num_classes: int) -> nn.Module:
    """Two hidden layers, wide enough to bend round a class."""
    layers = (nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, num_classes))
    return nn.Sequential(nn.Flatten(), _Centred(), *layers)


@lru_cache(maxsize=64)
def trained(scene: Scene, method: str, seed: int) -> Trained:
    """Train one network and look at it; the same every time."""
    config = TrainConfig(
        model=f"{__name__}:network",
        eps=scene.eps,
        epochs=scene.epochs,
        batch_size=60,
        optimiser="adam",
        lr=0.01,
        schedule="cosine",
        weight_decay=0.0,
        valid_attack="pgd-2",
        seed=seed,
    )
    source = scene.source(seed)
    with _one_thread(), tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run = train(METHODS[method], config, out=out, source=source, device="cpu", quiet=True)
        model = run.model()
        test = source.test
        attacks = ("clean", "pgd-20")
        found = audit(model, test.images, test.labels, attacks=attacks, eps=scene.eps)
        clean, robust = (report.counts for report in found.values())
        called = _called(model, _grid())
        line = torch.linspace(0, 1, 1001)
        halfway = _called(model, torch.stack([torch.full_like(line, CENTRES[GREEN][0]), line], 1))
    return Trained(
        method,
        seed,
        tuple(clean.accuracy.tolist()),
        tuple(robust.accuracy.tolist()),
        float(robust.confusion[:GREEN, GREEN].sum() / robust.sizes[:GREEN].sum()),
        _begin_of_green(line, halfway),
        tuple(called.tolist()),
    )


def places() -> list[tuple[float, float]]:
    """The places of the picture, in the order of `Trained.regions`."""
    return [(x, y) for x, y in _grid().tolist()]


def _grid() -> Tensor:
    axis = torch.linspace(0, 1, _SIDE)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    return torch.stack([x.flatten(), y.flatten()], 1)


def _called(model: nn.Module, points: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(points.view(-1, 1, 1, 2)).argmax(1)
    return found


def _begin_of_green(line: Tensor, called: Tensor) -> float:
    """The last place below green's centre that is not green; its centre, where green has none."""
    others = line[(called != GREEN) & (line < CENTRES[GREEN][1])]
    return float(others.max()) if len(others) else 0.0


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums in one order, so that every machine of a kind finds the same numbers."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
