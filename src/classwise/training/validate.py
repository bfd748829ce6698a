"""Class counts of a model on held-out data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from classwise.attacks.ball import Ball
from classwise.attacks.fixed import radii_under
from classwise.attacks.inner import Moment
from classwise.attacks.named import parse_attack
from classwise.attacks.pgd import batchnorm_mode
from classwise.classes.counts import ClassCounts
from classwise.classes.settings import ClassSettings, Seen
from classwise.data.batches import Batches
from classwise.errors import ClasswiseError
from classwise.models.classifier import all_outputs
from classwise.objective import Outer
from classwise.recipe import Recipe
from classwise.slots import Slots
from classwise.training.config import TrainConfig
from classwise.types import Batch, Labels


def judged_under(config: TrainConfig, recipe: Recipe, images: int) -> Seen:
    """What validation judges by: its attack, or clean images where training has none.

    `images` is how many there are to judge by.
    """
    attack = parse_attack(config.valid_attack if recipe.attacks else "clean")
    if attack.eps is not None:
        raise ClasswiseError(f"valid_attack {attack.name}: set its eps by judge_eps instead")
    if config.eps_warmup and not recipe.attacks:
        raise ClasswiseError(f"eps_warmup is for attacks, but {recipe.name} trains without one")
    gated = [average.name for average in recipe.slots.averages if average.gate is not None]
    if gated and (attack.name == "clean" or not images):
        why = f"valid_attack is {attack.name}" if images else "there are no validation images"
        raise ClasswiseError(
            f"the gate of {gated[0]} opens on robust accuracy on validation data, but {why}; set "
            "valid=0.02 and valid_attack=pgd-10, or leave the gated average out"
        )
    return Seen("valid", attack.name)


@dataclass(frozen=True)
class Checker:
    """Looks at held-out splits, in eval mode, with one eps for every class: the judge's.

    The recipe's own attack, too, has that eps here, with its step as a number or a share of it.
    """

    splits: Mapping[str, Batches]
    num_classes: int
    eps: float
    ball: Ball
    seed: int
    slots: Slots
    base: ClassSettings  # at this eps
    teacher: nn.Module | None = None

    def look(
        self, model: nn.Module, needs: frozenset[Seen], moment: Moment
    ) -> dict[Seen, ClassCounts]:
        """Statistics for those of the splits and conditions that somebody needs."""
        found = {}
        for seen in sorted(needs):
            batches = self.splits.get(seen.split)
            if batches is not None and len(batches.labels) and seen != Seen("train", "robust"):
                found[seen] = self._counts(model, batches, seen.attack, moment)
        return found

    def _counts(
        self, model: nn.Module, batches: Batches, attack: str, moment: Moment
    ) -> ClassCounts:
        empty = torch.zeros(self.num_classes, self.num_classes, dtype=torch.int64)
        whole: ClassCounts | None = None
        with batchnorm_mode(model, "eval"):
            for batch in batches.in_order():
                if attack == "robust":
                    part = self._under_own_attack(model, batch, moment)
                else:
                    part = self._under_named_attack(model, batch, attack)
                whole = part if whole is None else whole + part
        return ClassCounts(empty) if whole is None else whole.to("cpu")

    def _under_named_attack(self, model: nn.Module, batch: Batch, attack: str) -> ClassCounts:
        condition = parse_attack(attack)
        radius = radii_under(condition, self.eps, self.ball, len(batch))
        images = condition.perturb(model, batch, eps=radius, ball=self.ball, seed=self.seed)
        with torch.no_grad():
            predicted: Labels = model(images).argmax(1)
        return ClassCounts.of(batch.labels, predicted, num_classes=self.num_classes)

    def _under_own_attack(self, model: nn.Module, batch: Batch, moment: Moment) -> ClassCounts:
        """The recipe's own attack and loss terms, with the base settings for every class."""
        inner, objective = self.slots.inner, self.slots.objective
        assert inner is not None
        assert objective is not None
        rows = self.base.to(batch.labels.device).rows(batch.labels)
        inner = replace(inner, batchnorm="eval")  # held-out images leave no trace in the model
        teacher = None
        if self.teacher is not None:
            with torch.no_grad():
                teacher = self.teacher(batch.images)
        views = {"clean": batch.images} | inner.perturb(
            model,
            batch,
            moment,
            radius=rows.margin,
            step=rows.step,
            ball=self.ball,
            teacher=teacher,
        )
        with torch.no_grad(), batchnorm_mode(model, "eval"):
            outputs = {view: all_outputs(model, views[view]) for view in objective.views}
        terms = objective.terms(Outer(outputs, batch.labels, rows, teacher=teacher))
        losses = {term.name: term.values for term in terms}
        losses["total"] = torch.stack([t.weight * t.scale * t.values for t in terms]).sum(0)
        return ClassCounts.of(
            batch.labels,
            outputs["robust"][:, : self.num_classes].argmax(1),
            num_classes=self.num_classes,
            losses=losses,
        )
