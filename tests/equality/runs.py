"""Whole runs: a straight training loop over three epochs beside `classwise.training`.

Order, crops and noise are the package's keyed draws; everything else is written out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from classwise.data.dataset import Dataset, DataSource
from classwise.data.sources import open_data
from classwise.draws import Draws
from classwise.recipe_text import parse_recipe
from classwise.record.tensors import read_tensors
from classwise.training.config import TrainConfig
from classwise.training.loop import Trainer, train
from classwise.training.run import Run
from equality import cfa
from equality.comparison import Comparison, Released, largest
from equality.equations import climb, climb_from_clean, kl, surprise, total_surprise
from equality.laboratory import World, float64, network_of

SEED, EPOCHS, BATCH, HELD_OUT, EPS = 3, 3, 16, 4, 0.03
MOMENTUM, DECAY = 0.9, 5e-4
CLASSES, PER_CLASS = 4, 24
CALIBRATED, START = 1, 1  # first epoch of CFA's margins and β, and of its average
FLOORS, THRESHOLD, KEPT = (0.3, 0.5), 0.1, 0.85  # λ₁, λ₂, δ, d


def digits() -> DataSource:
    """The first digits of four classes, unequally many."""
    whole = open_data("digits").train
    rows, seen = [], [0] * CLASSES
    for row, label in enumerate(whole.labels.tolist()):
        if label < CLASSES and seen[label] < PER_CLASS + 3 * label:
            rows.append(row)
            seen[label] += 1
    data = Dataset(
        whole.images[rows], whole.labels[rows], whole.class_names[:CLASSES], mirrored=False
    )
    return DataSource("some digits", data, data)


def network(num_classes: int, channels: int) -> nn.Module:
    """Named in the configuration, so that the package builds it with its own seed."""
    return network_of((channels, 8, 8), num_classes)


Losses = Callable[[nn.Module, World, Tensor, Tensor], tuple[Tensor, Tensor]]


def at_loss(model, here, margins, betas):  # noqa: ARG001
    """AT: loss and the logits of attacked images."""
    robust = model(here.images + cfa.attacked(model, here, margins.tolist()))
    return total_surprise(robust, here.labels) / len(here.labels), robust


def trades_loss(model, here, margins, betas, normalised=False):
    """TRADES, each sample divided by 1 + β_y if `normalised`."""
    examples = climb_from_clean(model, here, here.for_each(margins.tolist()), here.step)
    clean, robust = model(here.images), model(examples)
    parts = []
    for sample, label in enumerate(here.labels.tolist()):
        share = 1 / (1 + betas[label]) if normalised else 1.0
        part = surprise(clean[sample], label) + betas[label] * kl(clean[sample], robust[sample])
        parts.append(share * part)
    return torch.stack(parts).mean(), robust


def cropped(image: Tensor, draws: list[float]) -> Tensor:
    """One pixel of reflected border, and the old size out of that."""
    top, left = int(draws[0] * 3), int(draws[1] * 3)
    rows = [1, *range(8), 6]
    bordered = image[:, rows][:, :, rows]
    return bordered[:, top : top + 8, left : left + 8]


@dataclass
class Straight:
    """The state of the straight loop."""

    model: nn.Module
    momentum: list[Tensor]
    rate: float
    averaged: dict[str, Tensor] | None = None
    taken: int = 0  # epochs in the average

    def step(self, loss: Tensor, when: float) -> None:
        """SGD with momentum and weight decay on everything; the rate drops tenfold twice."""
        rate = self.rate * 0.1 ** sum(when >= drop * EPOCHS for drop in (0.5, 0.75))
        for weight in self.model.parameters():
            weight.grad = None
        loss.backward()
        with torch.no_grad():
            for weight, speed in zip(self.model.parameters(), self.momentum, strict=True):
                speed *= MOMENTUM
                speed += weight.grad + DECAY * weight
                weight -= rate * speed

    def average(self) -> None:
        state = {k: v.clone() for k, v in self.model.state_dict().items() if v.is_floating_point()}
        if self.averaged is not None:
            state = {k: KEPT * self.averaged[k] + (1 - KEPT) * state[k] for k in state}
        self.averaged = state
        self.taken += 1


def worst_class(model: nn.Module, valid: World) -> float:
    """Robust accuracy of the worst class under PGD-10, with running statistics."""
    model.eval()
    noise = Draws(SEED, "attack pgd-10").uniform(valid.index, valid.images.shape[1:], torch.float64)
    begin = (valid.images + (2 * noise - 1) * EPS).clamp(0.0, 1.0)
    found = climb(
        *(model, valid.images, begin, lambda z: total_surprise(z, valid.labels)),
        *(EPS, EPS / 4),
    )
    with torch.no_grad():
        guesses = model(found).argmax(1)
    model.train()
    rates = []
    for k in range(CLASSES):
        mine = valid.labels == k
        rates.append(float((guesses[mine] == k).double().mean()))
    return min(rates)


def straight_run(
    run: Straight, data: Dataset, losses: Losses, beta: float, classwise: bool
) -> None:
    """Three epochs, line by line."""
    model = run.model.train()
    seen, train_rows, valid_rows = [0] * CLASSES, [], []
    for row, label in enumerate(data.labels.tolist()):
        (valid_rows if seen[label] < HELD_OUT else train_rows).append(row)
        seen[label] += 1
    pixels = data.images.double() / 255
    whole = World(CLASSES, model, pixels, data.labels, EPS, EPS / 4)
    valid = replace(
        whole, images=pixels[valid_rows], labels=data.labels[valid_rows], keys=valid_rows
    )
    right = torch.zeros(CLASSES, dtype=torch.float64)
    sizes = torch.bincount(data.labels[train_rows], minlength=CLASSES).double()
    for epoch in range(EPOCHS):
        scale = [torch.ones(CLASSES, dtype=torch.float64)] * 2
        if classwise and epoch >= CALIBRATED:
            scale = [floor + right / sizes for floor in FLOORS]
        margins, betas = EPS * scale[0], beta * scale[1]
        right = torch.zeros(CLASSES, dtype=torch.float64)
        order = [train_rows[place] for place in Draws(SEED, "order", epoch).order(len(train_rows))]
        cuts = [order[begin : begin + BATCH] for begin in range(0, len(order), BATCH)]
        for number, rows in enumerate(cuts):
            places = Draws(SEED, "augment", epoch).uniform(torch.tensor(rows), (3,), torch.float64)
            images = [
                cropped(pixels[r], place) for r, place in zip(rows, places.tolist(), strict=True)
            ]
            facts = {"images": torch.stack(images), "labels": data.labels[rows], "keys": rows}
            here = replace(whole, **facts, epoch=epoch)
            loss, robust = losses(run.model, here, margins, betas)
            run.step(loss, epoch + number / len(cuts))
            for row, label in zip(robust, here.labels.tolist(), strict=True):
                right[label] += int(row.argmax()) == label
        if classwise and epoch + 1 >= START and worst_class(run.model, valid) >= THRESHOLD:
            run.average()


def case(recipe: str, losses: Losses, rate: float, beta: float = 0.0, classwise: bool = False):
    """Weights, buffers and averaged weights at the end of both."""
    source = digits()
    config = TrainConfig(
        model="equality.runs:network",
        valid=f"first:{HELD_OUT}",
        eps=EPS,
        epochs=EPOCHS,
        batch_size=BATCH,
        lr=rate,
        momentum=MOMENTUM,
        weight_decay=DECAY,
        seed=SEED,
    )
    with TemporaryDirectory() as folder, float64():
        before = Run(Path(folder) / "0")
        trainer = Trainer(before, parse_recipe(recipe), config, source, torch.device("cpu"))
        first = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        run = train(recipe, config, out=Path(folder) / "3", source=source, quiet=True)
        ours = {name: read_tensors(run.weights_path(name))[0] for name in run.weights}
        assert run.history[-1]["lr"] < rate  # it has dropped on the way
        model = network(CLASSES, 1)
        model.load_state_dict(first)
        theirs = Straight(model, [torch.zeros_like(p) for p in model.parameters()], rate)
        straight_run(theirs, source.train, losses, beta, classwise)
    names = [k for k, v in theirs.model.state_dict().items() if v.is_floating_point()]
    last = theirs.model.state_dict()
    moved = largest((last[k], first[k]) for k in names)
    assert moved > 1e-2, "nothing was trained"
    found = {f"weights after {EPOCHS} epochs": largest((ours["last"][k], last[k]) for k in names)}
    if classwise:
        assert 1 < theirs.taken < EPOCHS, "the gate was never open twice, or never closed"
        averaged = ((ours["fawa-last"][k], theirs.averaged[k]) for k in names)
        found["averaged weights"] = largest(averaged)
    return found


TRADES = "trades"
WITH_CFA = (
    f"trades+cfa(margin_floor={FLOORS[0]}, beta_floor={FLOORS[1]}, calibrate={CALIBRATED}, "
    f"start={START}, threshold={THRESHOLD})"
)
REMARK = "with our order of forwards; crops, SGD with momentum and weight decay, two drops"
LOOP = Released("a straight loop of three epochs, `tests/equality/runs.py`", "")

COMPARISONS = [
    Comparison("whole run of AT", "at", LOOP, lambda: case("at", at_loss, 0.1), REMARK),
    Comparison(
        "whole run of TRADES", TRADES, LOOP, lambda: case(TRADES, trades_loss, 0.1, 6.0), REMARK
    ),
    Comparison(
        "whole run of TRADES + CFA",
        WITH_CFA,
        LOOP,
        # a high rate: three short epochs must learn enough to open the gate
        lambda: case(WITH_CFA, partial(trades_loss, normalised=True), 1.0, 6.0, classwise=True),
        REMARK,
    ),
]
