"""CFA: class-wise calibrated fair adversarial training (Wei et al., CVPR 2023).

Its three parts are methods of their own: a margin per class (CCM), a β per class (CCR) and a
weight average behind a fairness gate (FAWA). `cfa` is all that apply to the base.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from classwise.classes.settings import (
    TRAIN_ROBUST,
    ClassPolicy,
    ClassSettings,
    Feedback,
    RenewedPolicy,
)
from classwise.errors import ClasswiseError
from classwise.papers import PAPERS
from classwise.recipe import Among, Method
from classwise.slots import Average, Gate, ShareGate, Slots
from classwise.stages import epoch_of


@dataclass(frozen=True, slots=True)
class CalibratedMargin(RenewedPolicy):
    """CCM: ε_k = (λ₁ + t_k) · ε, so a class already robust faces a stronger attack.

    t_k is the robust training accuracy of class k over the epoch that just ended, under that
    epoch's own ε_k; with `every`, over the batches of the epoch so far.
    """

    writes: ClassVar[frozenset[str]] = frozenset({"margin"})
    margin_floor: float  # λ₁
    start: float = 1  # first calibrated epoch

    def update(
        self, settings: ClassSettings, feedback: Feedback
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Scale the base margin by λ₁ plus the robust accuracy of the class."""
        if not feedback.trained or feedback.epoch < epoch_of(self.start, feedback.epochs):
            return settings, self
        scale = self.margin_floor + feedback.counts[TRAIN_ROBUST].known_accuracy
        return replace(settings, margin=settings.margin * scale.to(settings.margin)), self


@dataclass(frozen=True, slots=True)
class CalibratedBeta(ClassPolicy):
    """CCR: β_k = (λ₂ + t_k) · β, so a class already robust is held to its clean prediction more."""

    writes: ClassVar[frozenset[str]] = frozenset({"beta"})
    beta_floor: float  # λ₂
    start: float = 1  # first calibrated epoch

    def update(
        self, settings: ClassSettings, feedback: Feedback
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Scale the base β by λ₂ plus the robust accuracy of the class."""
        if feedback.epoch < max(1, epoch_of(self.start, feedback.epochs)):
            return settings, self
        scale = self.beta_floor + feedback.counts[TRAIN_ROBUST].known_accuracy
        return replace(settings, beta=settings.beta * scale.to(settings.beta)), self


MARGIN_FLOORS = {"fat": 0.7, "trades": 0.3}  # λ₁ of the paper; 0.5 on AT
BETA_FLOOR = 0.5  # λ₂ of the paper


def check_normalised(name: str, otherwise: str, among: Among) -> None:
    """Refuse a β per class where the loss has no form divided by 1 + β_y, CCR's own rule.

    Without it a class with a large β weighs more in the whole loss, not only in its KL.
    """
    base = among.base
    if base is None or "beta" not in type(base).model_fields:
        return  # there is no β at all, which is refused for every policy that writes one
    holder = "bat" if "bat" in among.names else base.name
    if holder == "bat" or "normalised" not in type(base).model_fields:
        raise ClasswiseError(
            f"{name} sets a β per class for a loss divided by 1 + β_y, but {holder}'s loss has no "
            f"such form; use trades instead, or {otherwise}"
        )


class CCM(Method):
    """A margin per class, ε_k = (λ₁ + t_k)·ε, from its robust training accuracy."""

    name: ClassVar[str] = "ccm"
    paper: ClassVar[str] = PAPERS["wei"].source

    margin_floor: Annotated[float, Field(gt=0, le=1)] | None = None  # λ₁
    start: Annotated[float, Field(ge=0)] = 1  # epoch, or fraction of the run
    every: Annotated[int, Field(ge=1)] | None = None  # batches; None: once per epoch

    def resolve(self, among: Among) -> Method:
        """Take the paper's floor for the base."""
        if self.margin_floor is not None:
            return self
        return self.model_copy(update={"margin_floor": among.first(MARGIN_FLOORS, 0.5)})

    def fill(self) -> Slots:
        """One policy, which writes the margin."""
        assert self.margin_floor is not None
        margin = CalibratedMargin(self.margin_floor, self.start, every=self.every)
        return Slots(policies=(margin,))


class CCR(Method):
    """A β per class, β_k = (λ₂ + t_k)·β, from its robust training accuracy.

    Beside it TRADES divides each sample's loss by 1 + β_y.
    """

    name: ClassVar[str] = "ccr"
    paper: ClassVar[str] = PAPERS["wei"].source

    beta_floor: Annotated[float, Field(ge=0, le=1)] = BETA_FLOOR  # λ₂
    start: Annotated[float, Field(ge=0)] = 1  # epoch, or fraction of the run

    def resolve(self, among: Among) -> Method:
        """Refuse a loss without the form that CCR needs."""
        check_normalised(self.name, "leave ccr out", among)
        return self

    def fill(self) -> Slots:
        """One policy, which writes β."""
        return Slots(policies=(CalibratedBeta(self.beta_floor, self.start),))


class _Gated(Method):
    """Options of the average behind a gate."""

    gate: Literal["threshold", "share"] = "threshold"
    threshold: Annotated[float, Field(ge=0)] | None = None  # δ; 0.2
    on: Literal["worst", "tail"] | None = None  # worst
    share: Annotated[float, Field(gt=0, le=1)] | None = None  # of the best so far; 0.5
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.85  # d
    start: Annotated[float, Field(ge=0)] = 0.25  # epoch, or fraction of the run

    def _gate_options(self) -> dict[str, Any]:
        """Fill in what belongs to the chosen gate, and refuse what belongs to the other."""
        defaults: dict[str, dict[str, Any]] = {
            "threshold": {"threshold": 0.2, "on": "worst"},
            "share": {"share": 0.5},
        }
        own = defaults.pop(self.gate)
        for other, options in defaults.items():
            for option in options:
                if getattr(self, option) is not None:
                    raise ClasswiseError(
                        f"{self.name}({option}={getattr(self, option)!r}) has no effect with "
                        f"gate={self.gate}; leave it out, or say gate={other}"
                    )
        return {option: v for option, v in own.items() if getattr(self, option) is None}

    def _average(self) -> Average:
        gate: Gate | ShareGate
        if self.gate == "share":
            assert self.share is not None
            gate = ShareGate(self.share)
        else:
            assert self.threshold is not None
            assert self.on is not None
            gate = Gate(self.threshold, self.on)
        return Average("fawa", self.decay, self.start, gate)


class FAWA(_Gated):
    """A weight average that takes in only epochs whose worst class is robust enough.

    θ̄ ← d·θ̄ + (1 − d)·θ where min_k R_k ≥ δ on validation data, under one eps for every class.
    With many classes the minimum stays near 0: `on=tail` looks at the mean of the worst 10 %, and
    `gate=share` asks for a share of the best so far instead of a level that must be known. An
    average that never opened has no weights at all.
    """

    name: ClassVar[str] = "fawa"
    paper: ClassVar[str] = PAPERS["wei"].source

    def resolve(self, among: Among) -> Method:  # noqa: ARG002
        """Fill in the options of the gate."""
        return self.model_copy(update=self._gate_options())

    def fill(self) -> Slots:
        """One gated average."""
        return Slots(averages=(self._average(),))


class CFA(_Gated):
    """CCM and FAWA, and CCR where the base has a β."""

    name: ClassVar[str] = "cfa"
    paper: ClassVar[str] = PAPERS["wei"].source

    margin_floor: Annotated[float, Field(gt=0, le=1)] | None = None  # λ₁
    beta_floor: Annotated[float, Field(ge=0, le=1)] | None = None  # λ₂; None is without CCR
    calibrate: Annotated[float, Field(ge=0)] = 1  # first calibrated epoch, or fraction of the run

    def resolve(self, among: Among) -> Method:
        """Take the paper's floors for the base; a base without β gets no CCR."""
        check_normalised(self.name, "ccm+fawa in place of cfa", among)
        chosen = self._gate_options()
        if self.margin_floor is None:
            chosen["margin_floor"] = among.first(MARGIN_FLOORS, 0.5)
        if self.beta_floor is None and among.base and "beta" in type(among.base).model_fields:
            chosen["beta_floor"] = BETA_FLOOR
        return self.model_copy(update=chosen)

    def fill(self) -> Slots:
        """One or two policies and one gated average."""
        assert self.margin_floor is not None
        policies: tuple[ClassPolicy, ...] = (CalibratedMargin(self.margin_floor, self.calibrate),)
        if self.beta_floor is not None:
            policies += (CalibratedBeta(self.beta_floor, self.calibrate),)
        return Slots(policies=policies, averages=(self._average(),))
