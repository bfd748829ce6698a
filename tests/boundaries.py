"""Class statistics and short runs for the tests of single methods."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from classwise.classes.counts import ClassCounts
from classwise.classes.settings import ClassSettings
from classwise.record.run_folder import read_lines
from classwise.record.tensors import read_tensors
from classwise.training.config import TrainConfig
from classwise.training.loop import Trainer, train
from classwise.training.run import Run

QUICK = TrainConfig(
    eps=0.2,
    epochs=3,
    batch_size=16,
    lr=0.05,
    valid="0.3",
    model="cnn(width=2)",
    valid_attack="pgd-2",
)


def plain_settings(num_classes, margin=0.2, step=0.05, beta=3.0):
    """What every update begins from, in float64."""
    base = ClassSettings.uniform(num_classes, margin=0, step=0)._each(torch.Tensor.double)
    one = torch.ones(num_classes, dtype=torch.float64)
    return replace(base, margin=margin * one, step=step * one, beta=beta * one)


def draw_confusion(num_classes, seed, missing=()):
    """An unbalanced table of whole numbers; `missing` classes have no sample."""
    rng = torch.Generator().manual_seed(seed)
    table = torch.randint(0, 9, (num_classes, num_classes), generator=rng)
    table += torch.diag(torch.randint(1, 30, (num_classes,), generator=rng))
    table[list(missing)] = 0
    return table


def draw_counts(num_classes, seed, missing=()):
    """Counts of such a table, with a summed softmax and a loss that belong to its sizes."""
    rng = torch.Generator().manual_seed(100 + seed)
    table = draw_confusion(num_classes, seed, missing)
    sizes = table.sum(1)
    labels = torch.repeat_interleave(torch.arange(num_classes), sizes)
    logits = 2 * torch.randn(len(labels), num_classes, generator=rng, dtype=torch.float64)
    logits[torch.arange(len(labels)), labels] += 1
    chances = torch.zeros(num_classes, num_classes, dtype=torch.float64)
    chances.index_add_(0, labels, logits.softmax(1))
    loss = sizes * torch.rand(num_classes, generator=rng, dtype=torch.float64)
    return ClassCounts(table, chances, {"total": 3 * loss})


def rates(table):
    """Accuracy of each class by a loop; the overall one stands in for a class without samples."""
    rows = table.tolist()
    hits = sum(row[k] for k, row in enumerate(rows))
    overall = hits / sum(map(sum, rows))
    return [row[k] / sum(row) if sum(row) else overall for k, row in enumerate(rows)], overall


def quick_train(recipe, out, source, *, resume=False, **options) -> Run:
    config = TrainConfig(**{**QUICK.model_dump(), **options})
    return train(recipe, config, out=out, resume=resume, source=source, quiet=True)


def interrupted_train(recipe, out, source, monkeypatch, epoch, **options) -> Run:
    """The same run, stopped in the middle of the boundary after `epoch` and then resumed."""

    def stop(self, state, logs):  # noqa: ARG001
        if state.epoch == epoch:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "watch", stop)
        with pytest.raises(KeyboardInterrupt):
            quick_train(recipe, out, source, **options)
    return quick_train(recipe, out, source, resume=True, **options)


def weights(run, name="last"):
    return read_tensors(run.weights_path(name))[0]


def same_weights(one, other):
    assert set(one) == set(other)
    return all(torch.equal(one[name], other[name]) for name in one)


def files(run):
    """Everything that must be the same, bit for bit."""
    names = ("run.json", "history.jsonl", "state.safetensors", "weights/*.safetensors")
    found = sorted(file for name in names for file in run.path.glob(name))
    return {str(file.relative_to(run.path)): file.read_bytes() for file in found}


# Settings with which a few digits are learnt.
LEARNS = {
    "eps": 0.05,
    "epochs": 6,
    "optimiser": "adamw",
    "lr": 0.02,
    "schedule": "constant",
    "model": "cnn(width=4)",
}


def watched_lines(run):
    return read_lines(run.path / "watch.jsonl")
