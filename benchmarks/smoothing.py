"""Simulate how often certificates and confirmed falls err: the tables of docs/smoothing.md.

python benchmarks/smoothing.py [images]

On a half-space all is known: at a distance d from its plane the smoothed model gives its class with
probability Φ(d/σ), the true radius is d, and the best attack of size r comes nearer by r.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

import classwise
from classwise.attacks.names import parse_condition
from classwise.attacks.noise import noisy_counts
from classwise.attacks.threat import Threat
from classwise.auditing.plan import Plan
from classwise.auditing.run import run_audit
from classwise.data.view import View
from classwise.draws import Draws
from classwise.models.subject import Subject
from classwise.statistics.smoothing import Certified, Counted, certify, predict, robust_ends
from classwise.types import Batch

SIGMA, DRAWN, CHOSEN = 0.25, 200, 50
ALPHAS = (0.001, 0.01, 0.05, 0.2)
CLASSES, PER_CLASS, RADIUS = 10, 100, 0.2


class HalfSpace(nn.Module):
    """Class 1 on one side of a plane through the middle grey."""

    def __init__(self, side: int = 6) -> None:
        super().__init__()
        way = torch.randn(1, 1, side, side, generator=torch.Generator().manual_seed(0))
        self.way = nn.Parameter(way / way.norm(), requires_grad=False)

    def forward(self, images: Tensor) -> Tensor:
        """Height over the plane, and its opposite."""
        height = ((images - 0.5) * self.way).sum((1, 2, 3))
        return torch.stack([-height, height], 1)


def half_space_counts(distances: Tensor, draws: int, purpose: str) -> np.ndarray:
    """Answers of the smoothed half-space at these distances, by the package's own noise."""
    model = HalfSpace()
    images = 0.5 + distances.view(-1, 1, 1, 1) * model.way
    ones = torch.ones(len(distances), dtype=torch.int64)
    batch = Batch(images, ones, torch.arange(len(distances)))
    found = noisy_counts(Subject(model, 2, 4096), batch, SIGMA, draws, Draws(0, purpose))
    return np.asarray(found.numpy())


def certificates(images: int) -> None:
    """How often a certified radius is longer than the true one, and who abstains."""
    distances = torch.linspace(0.001, 2 * SIGMA, images)
    selection = half_space_counts(distances, CHOSEN, "selection")
    counts = half_space_counts(distances, DRAWN, "estimation")
    print("| α | certificates longer than the true radius | abstained |\n| ---: | ---: | ---: |")
    for alpha in ALPHAS:
        found = certify(selection, counts, SIGMA, alpha)
        long = (found.classes == 1) & (found.radius > distances.numpy())
        wrong = (found.classes == 0) & ~found.abstained
        rate = (long | wrong).mean()
        print(f"| {alpha:g} | {100 * rate:.3f} % | {100 * found.abstained.mean():.2f} % |")


def confirmed_falls(images: int) -> None:
    """How often an image on the plane itself, which cannot be said to fall, is said to fall."""
    counts = half_space_counts(torch.zeros(images), DRAWN, "confirmation")
    print("\n| α | falls of images that end on the boundary | abstained |\n| ---: | ---: | ---: |")
    for alpha in ALPHAS:
        classes, sure = predict(counts, alpha)
        fell = (sure & (classes == 0)).mean()
        print(f"| {alpha:g} | {100 * fell:.3f} % | {100 * (~sure).mean():.2f} % |")


def contradicted(images: int) -> None:
    """How often an image is certified at its distance, and falls to the best attack of that size.

    No image is nearer to both errors: a little nearer to the plane, and it may fall by right.
    """
    rng, distances = np.random.default_rng(1), np.linspace(0.001, 2 * SIGMA, images)
    print("\n| α | certified as far as the boundary | fell there | both |\n|" + " ---: |" * 4)
    for alpha in ALPHAS:
        proof = _proof(rng, distances, alpha)
        certified = (proof.classes == 1) & (proof.radius >= distances)
        classes, sure = predict(_answers(rng, 0 * distances, DRAWN), alpha)
        fell = sure & (classes == 0)
        shares = (certified.mean(), fell.mean(), (certified & fell).mean())
        print(f"| {alpha:g} | " + " | ".join(f"{100 * one:.3f} %" for one in shares) + " |")


def brackets(repetitions: int) -> None:
    """How often [low, high] holds the robust accuracy of all classes; images are drawn anew."""
    rng, sizes = np.random.default_rng(0), np.full(CLASSES, PER_CLASS)
    middle = np.linspace(-0.1, 0.5, CLASSES)[:, None]
    spread = np.asarray(stats.norm.sf(RADIUS, middle[:, 0], 0.2))
    share = np.linspace(0.05, 0.95, CLASSES)

    def near() -> np.ndarray:
        return rng.normal(middle, 0.2, (CLASSES, PER_CLASS))

    def far() -> np.ndarray:
        return np.where(rng.random((CLASSES, PER_CLASS)) < share[:, None], 2.0, -2.0)

    print("\n| images | α | all classes inside | mean low | true mean | mean high |")
    print("| --- |" + " ---: |" * 5)
    for words, draw, truth in (
        ("at all distances", near, spread),
        ("far from the boundary", far, share),
    ):
        for alpha in ALPHAS:
            ends = np.array([_ends(rng, draw(), sizes, alpha) for _ in range(repetitions)])
            inside = ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).all(1).mean()
            means = (inside, ends[:, 0].mean(), truth.mean(), ends[:, 1].mean())
            shares = " | ".join(f"{100 * one:.1f} %" for one in means)
            print(f"| {words} | {alpha:g} | {shares} |", flush=True)


def _ends(
    rng: np.random.Generator, distances: np.ndarray, sizes: np.ndarray, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """The bracket of every class for images at these distances."""
    proof = _proof(rng, distances, alpha)
    certified = (proof.classes == 1) & (proof.radius >= RADIUS)
    classes, sure = predict(_answers(rng, distances - RADIUS, DRAWN), alpha)
    standing = ~(sure & (classes == 0))
    return robust_ends(
        Counted(_per_class(certified), sizes, alpha), Counted(_per_class(standing), sizes, alpha)
    )


def contradictions() -> None:
    """Certified at a radius and broken inside it, on trained networks: at most 2α of all images."""
    print("\n| network | radius | α | certified | standing | both certified and broken | classes "
          "with more certified than standing |\n| --- |" + " ---: |" * 6)  # fmt: skip
    test = classwise.open_data("digits").test
    data = View.given(test.images, test.labels, 10, test.class_names)
    for name, model in networks().items():
        for radius in (0.1, 0.25, 0.4):
            for alpha in (ALPHAS[0], ALPHAS[-1]):
                how = f"sigma={SIGMA},n=400,alpha={alpha}"
                threat = Threat.of(radius, "L2")
                wanted = (f"smoothing({how})", f"smoothed-pgd-10({how},m=8)")
                conditions = tuple(parse_condition(one, threat) for one in wanted)
                plan = Plan(Subject(model, 10, 2048), data, conditions)
                proof, attack = (found.correct for found in run_audit(plan))
                both = proof & ~attack
                more = [proof[k].sum() > attack[k].sum() for k in (test.labels.numpy() == c
                        for c in range(10))]  # fmt: skip
                print(
                    f"| {name} | {radius} | {alpha:g} | {100 * proof.mean():.1f} % | "
                    f"{100 * attack.mean():.1f} % | {both.sum()} of {len(both)} | {sum(more)} |",
                    flush=True,
                )


def networks() -> dict[str, nn.Module]:
    """Small networks for the embedded digits, a minute of training under noise for all."""
    train = classwise.open_data("digits").train
    torch.manual_seed(0)
    made: dict[str, nn.Module] = {
        "linear": nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
        "two layers": nn.Sequential(
            nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
        ),
        "convolutions": nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2, padding=1),
            nn.ReLU(), nn.Flatten(), nn.Linear(256, 10),
        ),
    }  # fmt: skip
    images = train.images.float() / 255
    for model in made.values():
        optimiser = torch.optim.Adam(model.parameters(), 3e-3)
        for step in range(400):
            noise = Draws(0, "noise", step).noise(torch.arange(len(images)), images.shape[1:])
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(images + SIGMA * noise), train.labels)
            loss.backward()  # type: ignore[no-untyped-call]  # torch gives it no types
            optimiser.step()
    return made


def _proof(rng: np.random.Generator, distances: np.ndarray, alpha: float) -> Certified:
    selection, counts = (_answers(rng, distances, n) for n in (CHOSEN, DRAWN))
    return certify(selection, counts, SIGMA, alpha)


def _answers(rng: np.random.Generator, distances: np.ndarray, draws: int) -> np.ndarray:
    hits = rng.binomial(draws, stats.norm.cdf(distances.ravel() / SIGMA))
    return np.stack([draws - hits, hits], axis=1)


def _per_class(who: np.ndarray) -> np.ndarray:
    return np.asarray(who.reshape(CLASSES, PER_CLASS).sum(1))


def main(images: int = 50_000) -> None:
    """Print five Markdown tables."""
    began = time.process_time()
    torch.set_num_threads(1)
    certificates(images)
    confirmed_falls(images)
    contradicted(images)
    brackets(max(1, images // 50))
    contradictions()
    print(f"\n{time.process_time() - began:.0f} seconds of processor time", file=sys.stderr)


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2]))
