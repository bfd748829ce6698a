"""Class statistics as one additive record; every class metric is a function of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from classwise.types import ClassByClass, Labels, Logits, PerClass, PerSample

TAIL_FROM = 20  # with fewer classes, the worst 10 % is the worst class or two


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """How often samples of class `k` (row) were called class `j` (column), and what they cost.

    Counts add, so batches, shards and processes can be merged in any order.

    >>> a = ClassCounts.of(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), num_classes=2)
    >>> (a + a).accuracy.tolist()
    [0.5, 1.0]
    >>> a.false_positive_share.tolist()
    [0.0, 1.0]
    """

    confusion: ClassByClass  # int64
    probability: ClassByClass | None = None  # summed softmax; only where some policy asks
    losses: Mapping[str, PerClass] = field(default_factory=dict)  # summed, per named term
    unanswered: PerClass | None = None  # samples that were called no class; None: there are none

    @classmethod
    def of(
        cls,
        labels: Labels,
        predicted: Labels,
        *,
        num_classes: int,
        logits: Logits | None = None,
        losses: Mapping[str, PerSample] | None = None,
    ) -> ClassCounts:
        """Count one batch in a single pass; `logits` adds the summed softmax."""
        # not bincount, which makes a GPU wait to see how many cells there are
        cells = torch.zeros(num_classes**2, dtype=torch.int64, device=labels.device)
        cell = labels.long() * num_classes + predicted
        cells.index_add_(0, cell, torch.ones_like(cell))
        probability = None
        if logits is not None:
            probability = torch.zeros(
                num_classes, num_classes, dtype=torch.float64, device=labels.device
            )
            probability.index_add_(0, labels, logits.detach().double().softmax(1))
        sums = {
            name: class_sums(labels, value, num_classes) for name, value in (losses or {}).items()
        }
        return cls(cells.view(num_classes, num_classes), probability, sums)

    @classmethod
    def of_verdicts(
        cls,
        labels: Labels,
        predicted: Labels,
        *,
        num_classes: int,
        losses: Mapping[str, PerSample] | None = None,
    ) -> ClassCounts:
        """Count verdicts; the class number K, which a certificate may give, is no class.

        >>> one = torch.tensor([0, 0, 1])
        >>> ClassCounts.of_verdicts(one, torch.tensor([0, 2, 1]), num_classes=2).accuracy.tolist()
        [0.5, 1.0]
        """
        answered = predicted < num_classes
        if bool(answered.all()):
            return cls.of(labels, predicted, num_classes=num_classes, losses=losses)
        sums = cls.of(labels, labels, num_classes=num_classes, losses=losses).losses
        counts = cls.of(labels[answered], predicted[answered], num_classes=num_classes)
        none = torch.bincount(labels[~answered], minlength=num_classes)
        return replace(counts, losses=sums, unanswered=none)

    @classmethod
    def of_logits(cls, labels: Labels, logits: Logits, details: frozenset[str]) -> ClassCounts:
        """Count a batch of logits, with the summed softmax or label losses where asked for."""
        logits = logits.detach()
        losses = {}
        if "losses" in details:
            losses["label_ce"] = F.cross_entropy(logits.float(), labels, reduction="none")
        return cls.of(
            labels,
            logits.argmax(1),
            num_classes=logits.shape[1],
            logits=logits if "probability" in details else None,
            losses=losses,
        )

    def __add__(self, other: ClassCounts) -> ClassCounts:
        both = self.probability is not None and other.probability is not None
        return ClassCounts(
            self.confusion + other.confusion,
            self.probability + other.probability if both else None,  # type: ignore[operator]
            {n: self.losses[n] + other.losses[n] for n in self.losses if n in other.losses},
            _sum(self.unanswered, other.unanswered),
        )

    def to(self, device: torch.device | str) -> ClassCounts:
        """Move to another device."""
        return ClassCounts(
            self.confusion.to(device),
            None if self.probability is None else self.probability.to(device),
            {name: value.to(device) for name, value in self.losses.items()},
            None if self.unanswered is None else self.unanswered.to(device),
        )

    @property
    def sizes(self) -> PerClass:
        """n_k, samples of each class."""
        called = self.confusion.sum(dim=1)
        return called if self.unanswered is None else called + self.unanswered

    @property
    def present(self) -> Tensor:
        """Which classes have at least one sample."""
        return self.sizes > 0

    @property
    def accuracy(self) -> PerClass:
        """A_k = M[k,k] / n_k, the recall of each class; nan marks a class with no sample."""
        return self.confusion.diagonal().double() / self.sizes

    @property
    def overall(self) -> float:
        """Share of all samples that are right; nan where there are none."""
        total = int(self.sizes.sum())
        return int(self.confusion.trace()) / total if total else float("nan")

    @property
    def rates(self) -> dict[str, Any]:
        """Overall and per-class accuracy for the history; None marks a class without samples."""
        by_class = [None if rate != rate else rate for rate in self.accuracy.tolist()]
        return {"overall": self.overall, "by_class": by_class}

    @property
    def known_accuracy(self) -> PerClass:
        """Class accuracy with the overall one in place of classes without a sample."""
        fallback = torch.full_like(self.accuracy, self.overall).nan_to_num(0.0)
        return torch.where(self.present, self.accuracy, fallback)

    @property
    def worst(self) -> float:
        """Accuracy of the worst class that has samples; nan where there are none."""
        seen = self.accuracy[self.present]
        return float(seen.min()) if len(seen) else float("nan")

    def tail(self, share: float = 0.1) -> float:
        """Mean accuracy of the worst `share` of the classes that have samples, at least one."""
        seen = self.accuracy[self.present].sort().values
        return float(seen[: max(1, round(share * len(seen)))].mean())

    @property
    def false_positive_share(self) -> PerClass:
        """C_FPS(j): of all mistakes that were called a class, the share that was called `j`."""
        mistakes = self.confusion.sum(dim=0) - self.confusion.diagonal()
        return mistakes.double() / mistakes.sum().clamp(min=1)

    @property
    def one_vs_rest_accuracy(self) -> PerClass:
        """C_acc(j) = (TP + TN) / N: right about "is it `j`?"; not the class accuracy."""
        sizes, hits = self.sizes, self.confusion.diagonal()
        total, wrong = sizes.sum(), self.confusion.sum(dim=0) + sizes - 2 * hits
        return (total - wrong).double() / total.clamp(min=1)


def class_sums(labels: Labels, values: PerSample, num_classes: int) -> PerClass:
    """Sum of a value over the samples of each class, in float64."""
    sums = torch.zeros(num_classes, dtype=torch.float64, device=labels.device)
    return sums.index_add_(0, labels, values.detach().double())


def _sum(one: PerClass | None, other: PerClass | None) -> PerClass | None:
    return one if other is None else other if one is None else one + other
