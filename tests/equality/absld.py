"""ABSLD's released code."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from classwise.classes.counts import ClassCounts
from classwise.methods.zhao2024_absld import CLEAN, ROBUST
from equality.comparison import Comparison, Released, largest, over
from equality.equations import chances, climb
from equality.laboratory import (
    QUANTITIES,
    SIZES,
    Outcome,
    World,
    ours,
    settings_along,
    trained,
    world,
)

CODE = Released("zhaoshiji123/ABSLD", "7407c3a")
RATE, LOW, HIGH, SIZE = 0.1, 0.5, 5.0, 20  # the last: samples of every class
SHARED = "both labels of the code's teacher share storage and are divided by both temperatures"
CONSTANT = "the code's 1e-5 inside the teacher's logarithm shifts the loss by a constant"


def moved(temperatures: list[float], losses: list[float], rate: float) -> list[float]:
    """One update from the summed cross-entropy of every class."""
    mean = sum(losses) / len(losses)
    gaps = [loss - mean for loss in losses]
    widest = max(abs(gap) for gap in gaps)
    after = [t - rate * gap / widest for t, gap in zip(temperatures, gaps, strict=True)]
    return [min(max(t, LOW), HIGH) for t in after]


def losses_of(num_classes: int, epoch: int) -> tuple[list[float], list[float]]:
    """Summed cross-entropies of an epoch, attacked and clean; the ranking drifts slowly."""
    rng = torch.Generator().manual_seed(epoch // 20)
    both = SIZE * (0.2 + 3 * torch.rand(2, num_classes, generator=rng, dtype=torch.float64))
    return both[0].tolist(), both[1].tolist()


def as_counts(num_classes: int, epoch: int) -> dict:
    confusion = SIZE * torch.eye(num_classes, dtype=torch.int64)
    return {
        seen: ClassCounts(confusion, losses={"label_ce": torch.tensor(sums, dtype=torch.float64)})
        for seen, sums in zip((ROBUST, CLEAN), losses_of(num_classes, epoch), strict=True)
    }


def temperatures_along(num_classes: int, epochs: int) -> list[tuple[list[float], list[float]]]:
    """Both temperatures after every epoch; the rate falls tenfold at the end of three of them."""
    rate, hot, cold = RATE, [1.0] * num_classes, [1.0] * num_classes
    found = []
    for epoch in range(1, epochs + 1):
        if epoch in (215, 260, 285):
            rate *= 0.1
        attacked, clean = losses_of(num_classes, epoch)
        hot, cold = moved(hot, attacked, rate), moved(cold, clean, rate)
        found.append((hot, cold))
    return found


def policy_case(num_classes: int) -> dict[str, float]:
    boundaries = [{}, *(as_counts(num_classes, epoch) for epoch in range(1, 301))]
    found = settings_along("absld", world(num_classes), boundaries, epochs=300)[1:]
    pairs, seen = [], set()
    for settings, (hot, cold) in zip(found, temperatures_along(num_classes, 300), strict=True):
        pairs.append((settings.robust_temperature, torch.tensor(hot, dtype=torch.float64)))
        pairs.append((settings.clean_temperature, torch.tensor(cold, dtype=torch.float64)))
        seen |= {*hot, *cold} & {LOW, HIGH}
    assert LOW in seen, "no temperature ever reached its lower end"
    return {"temperatures over 300 boundaries": largest(pairs)}


def distance(teacher: Tensor, student: Tensor) -> Tensor:
    """Mean over all entries of −q·log p + q·log(q + 1e-5)."""
    whole = torch.zeros((), dtype=torch.float64)
    for known, learnt in zip(teacher, student, strict=True):
        q, p = chances(known), chances(learnt)
        whole = whole + (-p.log() * q + (q + 1e-5).log() * q).sum()
    return whole / teacher.numel()


def step(here: World, teacher: Tensor, hot: list[float], cold: list[float]) -> Outcome:
    model = here.fresh()
    for_attacked = torch.stack([z / hot[y] for z, y in zip(teacher, here.labels, strict=True)])
    for_clean = torch.stack([z / cold[y] for z, y in zip(teacher, here.labels, strict=True)])

    def height(logits: Tensor) -> Tensor:
        whole = torch.zeros((), dtype=torch.float64)
        for known, learnt in zip(for_attacked, logits, strict=True):
            q = chances(known)
            whole = whole + (q * (q.log() - chances(learnt).log())).sum()
        return whole

    model.eval()
    begin = here.images + 0.001 * here.normal()
    examples = climb(model, here.images, begin, height, here.eps, here.step).clamp(0.0, 1.0)
    model.train()
    robust, clean = model(examples), model(here.images)
    loss = 5 / 6 * distance(for_attacked, robust) + 1 / 6 * distance(for_clean, clean)
    return trained(model, [examples, here.images], loss)


def step_case(num_classes: int, shared: bool = False) -> dict[str, float]:
    here = replace(world(num_classes), epoch=6)
    teacher = world(num_classes, seed=20).network.eval()
    hot, cold = temperatures_along(num_classes, 6)[-1]
    if shared:
        hot = cold = [a * b for a, b in zip(hot, cold, strict=True)]
    with torch.no_grad():
        known = teacher(here.images)
    boundaries = [{}, *(as_counts(num_classes, epoch) for epoch in range(1, 7))]
    found = ours("absld", here, boundaries, teacher=teacher)
    return found.beside(step(here, known, hot, cold))


COMPARISONS = [
    Comparison(
        "ABSLD, own temperatures",
        "absld",
        CODE,
        lambda: over(map(step_case, SIZES)),
        apart={"loss": CONSTANT},
    ),
    Comparison(
        "ABSLD, shared storage",
        "absld",
        CODE,
        lambda: over(step_case(size, shared=True) for size in SIZES),
        apart=dict.fromkeys(QUANTITIES, SHARED),
    ),
    Comparison(
        "ABSLD, temperatures",
        "absld",
        CODE,
        lambda: over(map(policy_case, SIZES)),
        "for classes of equal size; the code sums the loss of a class, ours is its mean",
    ),
]
