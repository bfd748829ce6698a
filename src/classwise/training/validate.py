"""Class counts of a model on held-out data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from classwise.attacks.ball import L2_BALL
from classwise.attacks.condition import Condition, Traits
from classwise.attacks.inner import Moment
from classwise.attacks.judged import STANDING, Judged, Tell
from classwise.attacks.losses import LogitGap
from classwise.attacks.names import named_condition, parse_condition
from classwise.attacks.search.pgd import Pgd
from classwise.attacks.search.suite import Suite
from classwise.attacks.threat import Threat
from classwise.auditing.plan import Plan
from classwise.auditing.run import run_audit
from classwise.classes.counts import ClassCounts
from classwise.classes.settings import ClassSettings, Seen
from classwise.data.batches import Batches
from classwise.data.view import View
from classwise.errors import ClasswiseError
from classwise.models.classifier import all_outputs
from classwise.models.subject import Subject
from classwise.objective import Outer
from classwise.recipe import Recipe
from classwise.record.rows import Predictions
from classwise.slots import Slots
from classwise.training.config import TrainConfig
from classwise.types import Batch, Logits, PerSample

_OWN = Traits("robust")


def judged_under(config: TrainConfig, recipe: Recipe, images: int) -> Seen:
    """What validation judges by: its attack, or clean images where training has none.

    `images` is how many there are to judge by.
    """
    name, eps = named_condition(config.valid_attack if recipe.attacks else "clean")
    if eps is not None:
        raise ClasswiseError(f"valid_attack {name}: set its eps by judge_eps instead")
    if config.eps_warmup and not recipe.attacks:
        raise ClasswiseError(f"eps_warmup is for attacks, but {recipe.name} trains without one")
    gated = [average.name for average in recipe.slots.averages if average.gate is not None]
    if gated and (name == "clean" or not images):
        why = f"valid_attack is {name}" if images else "there are no validation images"
        raise ClasswiseError(
            f"the gate of {gated[0]} opens on robust accuracy on validation data, but {why}; set "
            "valid=0.02 and valid_attack=pgd-10, or leave the gated average out"
        )
    watchers = [p for p in recipe.slots.policies if any(s.split == "valid" for s in p.needs(1))]
    if watchers and not images:
        owner = recipe.owners[f"class {min(watchers[0].writes)}"]
        raise ClasswiseError(
            f"{owner} looks at validation images after every epoch, but there are none; set "
            "valid=0.02, or see the options of " + owner
        )
    judging = {"valid_attack": name}
    for policy in recipe.slots.policies:
        owner = recipe.owners[f"class {min(policy.writes)}"]
        judging |= {f"the attack of {owner}": s.attack for s in policy.needs(1)}
    for what, attack in judging.items():
        _refuse_any(what, attack)
    return Seen("valid", name)


def _refuse_any(what: str, name: str) -> None:
    """Refuse PGD that is judged by any of its iterates: it is cheap, and another number."""
    if name == "robust":  # the recipe's own attack, judged where it ends
        return
    attack = parse_condition(name, Threat(L2_BALL, 0.0)).attack
    if isinstance(attack, Suite) and any(isinstance(one, Pgd) for one in attack.searches):
        raise ClasswiseError(
            f"{what} is {name}, whose verdict is `any`: fooled by some iterate. Best weights, "
            "gates and policies are made for PGD judged where it ends, so that is for watching "
            f"only: leave verdict=any, or the suite, out here, and set watch=test:{name}"
        )


@dataclass(frozen=True)
class OwnAttack:
    """The attack of a recipe on held-out images, and its loss terms, as an attack of an audit.

    Every class has the base settings, with the judge's eps.
    """

    slots: Slots
    base: ClassSettings
    moment: Moment
    teacher: nn.Module | None
    name: str = "robust"
    identity: str = "robust"
    traits: Traits = _OWN
    verdict: str = "last"
    needs_gradient: bool = True
    by_batch: bool = False

    def judge(
        self,
        subject: Subject,
        batch: Batch,
        threat: Threat,
        seed: int,  # noqa: ARG002  its draws are those of the moment
        tell: Tell,
    ) -> Judged:
        """Answers to the recipe's adversarial images, with the losses that training would see."""
        parts = [
            self._part(subject, Batch(batch.images[rows], batch.labels[rows], batch.index[rows]),
                       threat)
            for rows in torch.split(
                torch.arange(len(batch), device=batch.labels.device), subject.width
            )
        ]  # fmt: skip
        logits = torch.cat([logits for logits, _ in parts])
        losses = {name: torch.cat([found[name] for _, found in parts]) for name in parts[0][1]}
        predicted = logits.argmax(1)
        tell(self.name, predicted == batch.labels)
        fell_to = torch.where(predicted == batch.labels, STANDING, 0)
        gap = -LogitGap(batch.labels)(logits)
        own, moment = self.slots.inner, self.moment
        steps = own.steps_at(moment) if own else 0
        spent = torch.full_like(batch.labels, steps, dtype=torch.int32)
        return Judged(predicted, gap, spent, fell_to, (self.name,), batch.images, losses)

    def _part(
        self, subject: Subject, batch: Batch, threat: Threat
    ) -> tuple[Logits, dict[str, PerSample]]:
        inner, objective = self.slots.inner, self.slots.objective
        model = subject.model
        assert inner is not None
        assert objective is not None
        assert isinstance(model, nn.Module)
        rows = self.base.to(batch.labels.device).rows(batch.labels)
        inner = replace(inner, batchnorm="eval")  # held-out images leave no trace in the model
        teacher = None
        if self.teacher is not None:
            with torch.no_grad():
                teacher = self.teacher(batch.images)
        twin = subject.quick(batch.images)  # the model itself answers to what comes of it
        assert isinstance(twin, nn.Module)
        views = {"clean": batch.images} | inner.perturb(
            twin,
            batch,
            self.moment,
            radius=rows.margin,
            step=rows.step,
            ball=threat.ball,
            teacher=teacher,
        )
        with torch.no_grad():
            outputs = {view: all_outputs(model, views[view]) for view in objective.views}
        terms = objective.terms(Outer(outputs, batch.labels, rows, teacher=teacher))
        losses = {term.name: term.values for term in terms}
        losses["total"] = torch.stack([t.weight * t.scale * t.values for t in terms]).sum(0)
        return outputs["robust"][:, : subject.num_classes], losses


@dataclass(frozen=True)
class Checker:
    """Looks at held-out splits, in eval mode, with one eps for every class: the judge's.

    The recipe's own attack, too, has that eps here, with its step as a number or a share of it.
    """

    splits: Mapping[str, Batches]
    num_classes: int
    threat: Threat
    seed: int
    slots: Slots
    base: ClassSettings  # at this eps
    teacher: nn.Module | None = None
    _read: dict[str, Condition] = field(default_factory=dict)  # names are read once
    _asked: dict[int, Subject] = field(default_factory=dict)  # models are traced once

    def look(
        self, model: nn.Module, needs: frozenset[Seen], moment: Moment
    ) -> dict[Seen, ClassCounts]:
        """Statistics for those of the splits and conditions that somebody needs."""
        found: dict[Seen, ClassCounts] = {}
        for split, batches in self.splits.items():
            wanted = sorted(seen for seen in needs if seen.split == split)
            wanted = [seen for seen in wanted if seen != Seen("train", "robust")]
            if wanted and len(batches.labels):
                subject = self._subject(model, batches.batch_size, moment.epoch)
                data = View(batches.images, batches.labels, batches.origin)
                conditions = tuple(self._condition(seen.attack, moment) for seen in wanted)
                rows = run_audit(Plan(subject, data, conditions))
                found |= {s: self._counts(r) for s, r in zip(wanted, rows, strict=True)}
        return found

    def _subject(self, model: nn.Module, width: int, epoch: int) -> Subject:
        """A model as it is now. Those that were asked live on, so that no other has their id."""
        known = self._asked.get(id(model)) or Subject(model, self.num_classes, width)
        self._asked[id(model)] = known.moved(epoch)
        return self._asked[id(model)]

    def _condition(self, attack: str, moment: Moment) -> Condition:
        if attack == "robust":
            own = OwnAttack(self.slots, self.base, moment, self.teacher)
            return Condition(None, own, self.threat, self.seed)
        if attack not in self._read:
            self._read[attack] = parse_condition(attack, self.threat, self.seed)
        return self._read[attack]

    def _counts(self, found: Predictions) -> ClassCounts:
        return ClassCounts.of_verdicts(
            torch.from_numpy(found.label),
            torch.from_numpy(found.predicted),
            num_classes=self.num_classes,
            losses={name: torch.from_numpy(value) for name, value in found.losses.items()} or None,
        )
