"""ABSLD: a teacher's labels, sharper for the harder classes (Zhao et al., 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from classwise.attacks.losses import divergence
from classwise.classes.settings import ClassPolicy, ClassSettings, Feedback, Seen
from classwise.models.asking import BatchNormMode
from classwise.objective import Outer, Term
from classwise.recipe import Among, Method
from classwise.script import Script
from classwise.slots import AttackStep, AttackSteps, Slots
from classwise.spelling import QUARTER
from classwise.stages import epoch_of
from classwise.types import PerClass

CLEAN, ROBUST = Seen("train", "clean"), Seen("train", "robust")


@dataclass(frozen=True, slots=True)
class DistilObjective:
    """c · KL(q' ‖ p(x')) + (1 − c) · KL(q ‖ p(x)), with q = softmax(teacher(x) / T_y).

    `element` averages over the B·K entries as the released code does, so the loss is K times
    smaller than with `sample`.
    """

    robust_share: float  # c
    average: Literal["element", "sample"]

    @property
    def views(self) -> tuple[str, ...]:
        """The released code's order."""
        return ("robust", "clean")

    def terms(self, outer: Outer) -> Sequence[Term]:
        """Two terms; the teacher's own temperature for each."""
        assert outer.teacher is not None
        rows, teacher = outer.rows, outer.teacher
        width = teacher.shape[1] if self.average == "element" else 1
        parts = (
            ("robust", rows.robust_temperature, self.robust_share / width),
            ("clean", rows.clean_temperature, (1 - self.robust_share) / width),
        )
        return [
            Term(
                f"{view}_kl",
                divergence(teacher / temperature[:, None].to(teacher), outer.outputs[view]),
                rows.robust_weight,
                scale,
            )
            for view, temperature, scale in parts
        ]


@dataclass(frozen=True, slots=True)
class Temperatures(ClassPolicy):
    """T_k ← clip(T_k − r·(L_k − L̄)/max|L − L̄|, low, high), for clean and attacked images apart.

    L_k is the mean cross-entropy of class k over the epoch; a class without samples keeps its
    temperature. r falls tenfold at each of `drops`.
    """

    writes: ClassVar[frozenset[str]] = frozenset({"clean_temperature", "robust_temperature"})
    rate: float  # r
    low: float
    high: float
    drops: tuple[float, ...] = ()  # epochs or fractions
    clean: PerClass | None = None  # T of clean images
    robust: PerClass | None = None  # T of attacked images

    def __post_init__(self) -> None:
        object.__setattr__(self, "drops", tuple(self.drops))  # a checkpoint has it as a list

    def needs(self, epoch: int) -> frozenset[Seen]:
        """Both training statistics, once there is an epoch behind us."""
        return frozenset({CLEAN, ROBUST}) if epoch else frozenset()

    def details(self, epoch: int) -> frozenset[str]:  # noqa: ARG002
        """The summed cross-entropy."""
        return frozenset({"losses"})

    def update(
        self, settings: ClassSettings, feedback: Feedback
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Move both temperatures one step."""
        clean = settings.clean_temperature.double() if self.clean is None else self.clean
        robust = settings.robust_temperature.double() if self.robust is None else self.robust
        if feedback.epoch:
            fallen = sum(feedback.epoch >= epoch_of(d, feedback.epochs) for d in self.drops)
            rate = self.rate * 0.1**fallen
            clean = clean - rate * _gap(feedback, CLEAN).to(clean)
            robust = robust - rate * _gap(feedback, ROBUST).to(robust)
            clean, robust = clean.clamp(self.low, self.high), robust.clamp(self.low, self.high)
        changed = replace(
            settings,
            clean_temperature=clean.to(settings.clean_temperature),
            robust_temperature=robust.to(settings.robust_temperature),
        )
        return changed, replace(self, clean=clean, robust=robust)


def _gap(feedback: Feedback, seen: Seen) -> PerClass:
    """(L_k − L̄) / max|L − L̄| over the classes that have samples; 0 for the others."""
    counts = feedback.counts[seen]
    present = counts.present
    loss = counts.losses["label_ce"] / counts.sizes.clamp(min=1)
    away = torch.where(present, loss - loss[present].sum() / present.sum().clamp(min=1), 0.0)
    widest: Tensor = away.abs().max()
    return away / widest if widest > 0 else away


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class ABSLD(Method):
    """Learn from a robust teacher whose labels are sharper for classes the student finds hard.

    5/6·KL(q' ‖ p(x')) + 1/6·KL(q ‖ p(x)); q and q' are the teacher's predictions of the clean
    image at two temperatures of its class, which follow the student's class losses.
    """

    name: ClassVar[str] = "absld"
    paper: ClassVar[str] = "Zhao et al., 2024"
    base: ClassVar[bool] = True

    teacher: str | None = None  # weights file of the teacher
    robust_share: Annotated[float, Field(ge=0, le=1)] = 5 / 6
    average: Literal["element", "sample"] = "element"
    rate: Annotated[float, Field(ge=0)] = 0.1  # r
    low: Annotated[float, Field(gt=0, le=1)] = 0.5  # lowest temperature
    high: Annotated[float, Field(ge=1)] = 5.0  # highest temperature
    drops: Annotated[tuple[Annotated[float, Field(ge=0)], ...], BeforeValidator(_as_tuple)] = (
        *(215 / 300, 260 / 300, 285 / 300),  # when r falls tenfold
    )
    steps: AttackSteps = 10  # T, a number or a schedule such as {0: 2, 0.5: 10}
    step: AttackStep = QUARTER  # α, a number or a share of eps
    batchnorm: BatchNormMode = "eval"

    def suggests(self, among: Among) -> Script:  # noqa: ARG002
        """ABSLD's script, which lowers the rate after its epochs number 215, 260 and 285."""
        return Script(
            model="resnet18", epochs=300, drops=(215, 260, 285), eps=8 / 255, step=2 / 255
        )

    def fill(self) -> Slots:
        """Fill the attack, the objective, the teacher and the temperatures."""
        return Slots(
            reference="teacher",
            start="gaussian",
            steps=self.steps,
            step=self.step,
            batchnorm=self.batchnorm,
            objective=DistilObjective(self.robust_share, self.average),
            teacher=self.teacher,
            policies=(Temperatures(self.rate, self.low, self.high, self.drops),),
        )
