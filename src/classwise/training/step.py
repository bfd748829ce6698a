"""One batch on its way through a recipe: augment, attack, mix, loss, optimiser step, counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from classwise.attacks.ball import Ball
from classwise.attacks.carried import CARRIED, Memory, Visit
from classwise.attacks.inner import InnerAttack, Moment
from classwise.classes.counts import ClassCounts
from classwise.classes.settings import ClassSettings, Seen
from classwise.models.asking import batchnorm_mode
from classwise.models.classifier import all_outputs
from classwise.models.layout import training_layout
from classwise.models.twin import Following
from classwise.models.winograd import fewer_products
from classwise.objective import Attacked, Descent, Outer, Reduction, plain_step, total
from classwise.slots import Slots
from classwise.stages import epoch_of
from classwise.training.compiling import Compiler, check_compile
from classwise.training.config import TrainConfig
from classwise.training.scaling import IN_ATTACKS, SCALE, LossScale, check_scaling
from classwise.types import Batch, Images, Logits


@dataclass(frozen=True)
class Step:
    """What every batch of a run goes through, and with what."""

    model: nn.Module
    optimiser: torch.optim.Optimizer
    slots: Slots
    config: TrainConfig
    augment: Callable[..., Tensor]
    ball: Ball
    teacher: nn.Module | None
    num_classes: int
    device: torch.device

    def __post_init__(self) -> None:
        check_compile(self.config.compile, self.slots, self.device)
        check_scaling(self.config.precision, self.slots)

    @cached_property
    def _compiler(self) -> Compiler:
        return Compiler(self.config.compile)

    @cached_property
    def _plain_layout(self) -> bool:
        return training_layout(self.model, self.device) == torch.contiguous_format

    @cached_property
    def _twin(self) -> Following:
        return Following(self.model)

    def __call__(
        self,
        batch: Batch,
        settings: ClassSettings,
        kept: dict[str, dict[str, Tensor]],
        moment: Moment,
        details: frozenset[str],
        count_robust: bool,
    ) -> tuple[dict[Seen, ClassCounts], dict[str, Tensor]]:
        """Take the step; class counts of each view and the parts of the loss, all on the device.

        `kept` is the memory of regularisers and of carried perturbations, brought up to date.
        `details` are what the class counts must hold, and `count_robust` says whether the attacked
        images must be among them. Of a batch that is replayed, counts and losses are the last's.
        """
        images = self.augment(batch.images, batch.index, moment.seed, moment.epoch)
        batch = replace(batch, images=images.contiguous() if self._plain_layout else images)
        rows, teacher = settings.rows(batch.labels), None
        if self.teacher is not None:
            with torch.no_grad():
                teacher = self.teacher(batch.images)
        visit = Visit(batch, moment, rows.margin, rows.step, self.ball, self.augment)
        carry = self.slots.carry
        for _ in range(1 if carry is None else carry.replays):
            self._compiler.next_step()
            views = self._attack(visit, rows, kept.get(CARRIED, {}), teacher)
            seen = self._descend(visit, rows, views, kept, teacher)
            kept.update(seen["states"])
            if carry is not None:
                kept[CARRIED] = carry.keep(visit, views["robust"], kept[CARRIED])
        counted = self._pure(seen["outputs"], views.get("robust") if count_robust else None)
        counts = {
            Seen("train", name): ClassCounts.of_logits(
                batch.labels, logits[:, : self.num_classes], details
            )
            for name, logits in counted.items()
        }
        return counts, {"total": seen["total"], **seen["parts"]}

    def _descend(
        self,
        visit: Visit,
        rows: ClassSettings,
        views: dict[str, Images],
        kept: Mapping[str, dict[str, Tensor]],
        teacher: Logits | None,
    ) -> dict[str, Any]:
        """One step of the weights: outputs by view, the loss and its parts, what to remember."""
        slots, objective, batch, moment = (
            self.slots,
            self.slots.objective,
            visit.batch,
            visit.moment,
        )
        assert objective is not None
        soft: dict[str, Tensor] = {}
        if slots.mix is not None:
            outputs = self.num_classes + (slots.extra_outputs or 0)
            views, soft = slots.mix(Attacked(batch, views, outputs, self.num_classes, moment))
        seen: dict[str, Any] = {}
        asked, scale = self._compiler.outputs(self.model), LossScale(kept.get(SCALE))

        def forward() -> Tensor:
            with self._precision():
                found = {view: _wide(asked(views[view])) for view in objective.views}
            outer = Outer(found, batch.labels, rows, soft, teacher)
            terms = objective.terms(outer)
            loss = total(terms, self._reduction(moment))
            parts = {term.name: term.values.detach().mean() for term in terms}
            states = dict(kept)
            for rule in slots.regularisers:
                penalty, states[rule.name] = rule.penalty(outer, kept[rule.name])
                loss, parts[rule.name] = loss + penalty, penalty.detach()
            seen.update(outputs=found, parts=parts, states=states, total=loss.detach())
            return loss

        rule = slots.step_rule or plain_step

        def backward(loss: Tensor) -> None:
            self.optimiser.zero_grad(set_to_none=True)  # after the attack, before this backward
            scale.scaled(loss).backward()  # type: ignore[no-untyped-call]

        def update() -> None:
            if scale.unscale(self.model.parameters()):
                self._update()

        rule(Descent(forward, self.model, backward, update, moment))
        if scale.memory is not None:
            seen["states"][SCALE] = scale.memory
        return seen

    def _attack(
        self, visit: Visit, rows: ClassSettings, carried: Memory, teacher: Logits | None
    ) -> dict[str, Images]:
        """The clean images, and what the recipe's attack makes of them, if it has one."""
        views, carry, inner = {"clean": visit.batch.images}, self.slots.carry, self.slots.inner
        if inner is None:
            return views
        tempered = None if teacher is None else teacher / rows.robust_temperature[:, None]
        whom = self._asked(inner, visit)
        asked = self._compiler.model(whom)
        with self._precision(), self._quick_sums(whom):
            views |= inner.perturb(
                asked,
                visit.batch,
                visit.moment,
                radius=rows.margin,
                step=rows.step,
                ball=self.ball,
                target_odds=rows.target_odds,
                teacher=tempered,
                finer=rows.finer,
                recalled=None if carry is None else carry.recall(visit, carried),
                amplified=IN_ATTACKS if self.config.precision == "float16" else 1.0,
            )
        if carry is not None and carry.shared:
            views["robust"].requires_grad_()  # its slope comes with those of the weights
        return views

    def _asked(self, inner: InnerAttack, visit: Visit) -> nn.Module:
        """Whom the attack asks: in eval mode a quicker twin, with the weights of this step.

        It is looked at anew in every epoch, where a resumed run begins, too.
        """
        if inner.batchnorm != "eval" or not inner.steps_at(visit.moment):
            return self.model
        with batchnorm_mode(self.model, "eval"):
            return self._twin.now(visit.batch.images[:4], visit.moment.epoch)

    def _quick_sums(self, asked: nn.Module) -> AbstractContextManager[None]:
        """Fewer products for wide layers; compilers and half precision have ways of their own."""
        plain = self.config.compile == "off" and self.config.precision == "float32"
        return fewer_products(asked) if plain else nullcontext()

    def _pure(self, outputs: Mapping[str, Logits], attacked: Images | None) -> dict[str, Logits]:
        """Outputs that may be counted: where a mix was at work, attacked images are asked anew."""
        counted, mix = dict(outputs), self.slots.mix
        if mix is not None and not mix.pure:
            counted.pop("robust", None)
            if attacked is not None:
                # No pure robust logits in the outer forward: one more, with frozen buffers.
                with batchnorm_mode(self.model, "batch"), torch.no_grad():
                    counted["robust"] = all_outputs(self.model, attacked)
        return counted

    def _reduction(self, moment: Moment) -> Reduction:
        start, epochs = self.slots.reduction_start, moment.epochs
        waiting = start is not None and moment.epoch < max(1, epoch_of(start, epochs))
        return "mean" if waiting else self.slots.reduction or "mean"

    def _update(self) -> None:
        if self.config.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimiser.step()

    def _precision(self) -> torch.autocast:
        kind = torch.float16 if self.config.precision == "float16" else torch.bfloat16
        return torch.autocast(self.device.type, kind, enabled=self.config.precision != "float32")


def _wide(logits: Logits) -> Logits:
    """Losses need single precision at least; a model in double precision keeps it."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
