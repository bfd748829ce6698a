"""FRL: fair robust learning by class weights and margins (Xu et al., ICML 2021)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from classwise.classes.settings import ClassPolicy, ClassSettings, Feedback, Seen
from classwise.errors import ClasswiseError
from classwise.recipe import Among, Method
from classwise.script import Script
from classwise.slots import Slots
from classwise.stages import epoch_of
from classwise.types import PerClass

CLEAN, ATTACKED = Seen("valid", "clean"), Seen("valid", "pgd-20")


def excess_errors(feedback: Feedback) -> tuple[PerClass, PerClass]:
    """How far each class's clean error and boundary error lie above those of all samples.

    The boundary error is clean minus robust accuracy, not the robust error.
    """
    if not {CLEAN, ATTACKED} <= feedback.counts.keys():
        raise ClasswiseError(
            "frl compares the classes on validation data, but there are none; set valid=0.06"
        )
    clean, attacked = feedback.counts[CLEAN], feedback.counts[ATTACKED]
    boundary = clean.known_accuracy - attacked.known_accuracy
    return clean.overall - clean.known_accuracy, boundary - (clean.overall - attacked.overall)


def within(multipliers: Tensor, bound: float) -> Tensor:
    """Cut multipliers off at 0 and shrink them to a sum of at most `bound` (L)."""
    cut = multipliers.clamp(min=0)
    return cut * (bound / cut.sum().clamp(min=bound)) if bound else torch.zeros_like(cut)


def first_epoch(start: float, epochs: int) -> int:
    """The epoch that `start` means; a warm-up lasts one epoch at least.

    >>> first_epoch(0, 8), first_epoch(0.01, 8), first_epoch(0.75, 8), first_epoch(5, 8)
    (0, 1, 6, 5)
    """
    return max(1, epoch_of(start, epochs)) if start else 0


@dataclass(frozen=True, slots=True)
class WarmUpBeta(ClassPolicy):
    """β of the warm-up: what the robust model is trained with that FRL then fine-tunes."""

    writes: ClassVar[frozenset[str]] = frozenset({"beta"})
    start: float
    beta: float

    def needs(self, epoch: int) -> frozenset[Seen]:  # noqa: ARG002
        """Nothing: the clock decides."""
        return frozenset()

    def update(
        self, settings: ClassSettings, feedback: Feedback
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Hold β until the start; from then on it is the base's."""
        if feedback.epoch >= first_epoch(self.start, feedback.epochs):
            return settings, self
        return replace(settings, beta=torch.full_like(settings.beta, self.beta)), self


@dataclass(frozen=True, slots=True)
class _Multipliers(ClassPolicy):
    """When FRL acts: it sits still until `start` and then moves at every boundary."""

    start: float
    rate: float  # a
    # The epoch that `start` means, once the length of the run is known.
    first: int | None = field(default=None, repr=False)

    def needs(self, epoch: int) -> frozenset[Seen]:
        """Validation statistics, clean and under PGD-20, from the start on."""
        # Before the first boundary the start is not known in epochs; asking too much is harmless.
        waiting = epoch < self.first if self.first is not None else not epoch and self.start > 0
        return frozenset() if waiting else frozenset({CLEAN, ATTACKED})

    def update(
        self, settings: ClassSettings, feedback: Feedback
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Wait, or move the multipliers and set what follows from them."""
        first = first_epoch(self.start, feedback.epochs) if self.first is None else self.first
        awake = replace(self, first=first)
        if feedback.epoch < first:
            return settings, awake
        return awake.move(settings, feedback, feedback.epoch - first + 1)

    def move(
        self, settings: ClassSettings, feedback: Feedback, number: int
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Update at the beginning of FRL's epoch `number`, counted from 1."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class FairWeights(_Multipliers):
    """Weights of the clean and of the boundary term, from their own multipliers.

    λ ← N(λ + a·(excess − τ)), with twice the rate for the boundary; w_k = 1 + K·λ_k − Σλ, which is
    K times the paper's 1/K + λ_k − Σλ/K: only ratios count in a weighted mean.
    """

    writes: ClassVar[frozenset[str]] = frozenset({"label_weight", "robust_weight"})
    slack: float = 0.07  # τ₁ = τ₂
    bound: float = 0.5  # L
    halve_every: int = 40  # epochs after which a₁ is halved
    clean: PerClass | None = field(default=None, repr=False)  # λ_nat
    boundary: PerClass | None = field(default=None, repr=False)  # λ_bnd

    def move(
        self, settings: ClassSettings, feedback: Feedback, number: int
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Move both multipliers."""
        error, boundary = excess_errors(feedback)
        rate = self.rate * 0.5 ** (number // self.halve_every)
        clean = 0 * error if self.clean is None else self.clean
        clean = within(clean + rate * (error - self.slack), self.bound)
        robust = 0 * boundary if self.boundary is None else self.boundary
        robust = within(robust + 2 * rate * (boundary - self.slack), self.bound)
        after = replace(self, clean=clean, boundary=robust)
        return self.weigh(settings, clean, robust), after

    def weigh(self, settings: ClassSettings, clean: Tensor, robust: Tensor) -> ClassSettings:
        """Weigh both terms."""
        return replace(
            settings,
            label_weight=settings.label_weight * _weights(clean).to(settings.label_weight),
            robust_weight=settings.robust_weight * _weights(robust).to(settings.robust_weight),
        )


@dataclass(frozen=True, slots=True)
class FairCleanWeights(FairWeights):
    """The clean term's weights alone, as beside `remargin`."""

    writes: ClassVar[frozenset[str]] = frozenset({"label_weight"})

    def weigh(self, settings: ClassSettings, clean: Tensor, robust: Tensor) -> ClassSettings:  # noqa: ARG002
        """Weigh the clean term."""
        weight = settings.label_weight * _weights(clean).to(settings.label_weight)
        return replace(settings, label_weight=weight)


@dataclass(frozen=True, slots=True)
class FairMargins(_Multipliers):
    """Margins that grow where a class's boundary error is too large.

    λ ← λ + a₂·(excess − τ₂); ε_k = ε · clip(exp(2·λ_k), narrowest, widest). The step stays.
    """

    writes: ClassVar[frozenset[str]] = frozenset({"margin"})
    slack: float = 0.07  # τ₂
    narrowest: float = 0.98
    widest: float = 3.0
    boundary: PerClass | None = field(default=None, repr=False)  # λ_mar

    def move(
        self,
        settings: ClassSettings,
        feedback: Feedback,
        number: int,  # noqa: ARG002
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Move the multiplier."""
        _, boundary = excess_errors(feedback)
        before = 0 * boundary if self.boundary is None else self.boundary
        after = before + self.rate * (boundary - self.slack)
        factor = (2 * after).exp().clamp(self.narrowest, self.widest).to(settings.margin)
        return self.widen(settings, factor), replace(self, boundary=after)

    def widen(self, settings: ClassSettings, factor: PerClass) -> ClassSettings:
        """Multiply the margins."""
        return replace(settings, margin=settings.margin * factor)


@dataclass(frozen=True, slots=True)
class FairMarginsAndStep(FairMargins):
    """The step follows the largest margin: a quarter of it with the usual step of ε/4."""

    writes: ClassVar[frozenset[str]] = frozenset({"margin", "step"})

    def widen(self, settings: ClassSettings, factor: PerClass) -> ClassSettings:
        """Multiply the margins, and the step of every class by the largest factor."""
        step = settings.step * factor.max()
        return replace(settings, margin=settings.margin * factor, step=step)


def _weights(multipliers: PerClass) -> PerClass:
    return 1 + len(multipliers) * multipliers - multipliers.sum()


WARM_UP = 200  # epochs of plain training before the fine-tuning, where no model is given
TRADES_BETA = 6.0  # of the warm-up
# Constants of the three released scripts; both slacks (τ₁, τ₂) are alike in each.
CONSTANTS: dict[str, dict[str, float]] = {
    "both": {"slack": 0.07, "margin_rate": 0.2, "bound": 0.5, "widest": 3.0},
    "reweight": {"slack": 0.1, "bound": 0.5},
    "remargin": {"slack": 0.1, "margin_rate": 0.1, "bound": 0.3, "widest": 2.5},
}


class FRL(Method):
    """Weights and margins per class from Lagrange multipliers on validation errors.

    It fine-tunes a robust model: give its weights as `begin`, or let the same run train the plain
    base until `start` (by default three quarters of the run), TRADES with its own β of 6. From
    `start` on β of TRADES is 1.5, or 1 for `remargin`.
    """

    name: ClassVar[str] = "frl"
    paper: ClassVar[str] = "Xu et al., ICML 2021"

    variant: Literal["both", "reweight", "remargin"] = "both"
    begin: str | None = None  # run or weights file of a robust model
    start: Annotated[float, Field(ge=0)] | None = None  # epoch, or fraction of the run
    slack: Annotated[float, Field(ge=0, le=1)] | None = None  # τ₁ = τ₂
    rate: Annotated[float, Field(ge=0)] = 0.05  # a₁
    margin_rate: Annotated[float, Field(ge=0)] | None = None  # a₂
    bound: Annotated[float, Field(ge=0, lt=1)] | None = None  # L; below 1 keeps weights positive
    halve_every: Annotated[int, Field(ge=1)] = 40  # epochs after which a₁ is halved
    narrowest: Annotated[float, Field(gt=0, le=1)] = 0.98  # of ε_k / ε
    widest: Annotated[float, Field(ge=1)] | None = None
    warmup_beta: Annotated[float, Field(ge=0)] | None = None  # β before the start; None: the base's

    def suggests(self, among: Among) -> Script:  # noqa: ARG002
        """Fine-tuning at 0.001; without `begin` behind 200 epochs of the protocol papers share."""
        warm = 0 if self.begin is not None else WARM_UP
        tuning = 120 if self.variant == "remargin" else 40
        # The scripts step their schedule after an epoch: 40 whole epochs at 0.001, then less.
        falls = (warm + 40, warm + 80) if self.variant == "remargin" else ()
        return Script(
            model="preactresnet18",
            epochs=warm + tuning,
            drops=(100, 150, *falls) if warm else falls,  # to 0.001 before the tuning begins
            lr=0.1 if warm else 0.001,
            weight_decay=5e-4,
            eps=8 / 255,
            step=2 / 255,
            valid="last:0.06",
            own={"start": warm / (warm + tuning)},
        )

    def resolve(self, among: Among) -> Method:
        """Take the variant's constants, and a warm-up unless a model is given."""
        base = among.base
        if base is not None and "beta" not in type(base).model_fields:
            raise ClasswiseError(
                f"frl weighs a clean and a robust part of the loss, but {base.name} has one part; "
                "use trades instead"
            )
        chosen: dict[str, float] = dict(CONSTANTS[self.variant])
        chosen["start"] = 0.75 if self.begin is None else 0.0
        if (chosen["start"] if self.start is None else self.start) > 0:
            if "trades" in among.names and among.option("trades", "beta") is None:
                chosen["warmup_beta"] = TRADES_BETA
        elif self.warmup_beta is not None:
            raise ClasswiseError(
                f"frl(warmup_beta={self.warmup_beta:g}): FRL acts from the first epoch here, so "
                "there is no warm-up; leave warmup_beta out, or set frl(start=0.75)"
            )
        return self.model_copy(update={k: v for k, v in chosen.items() if getattr(self, k) is None})

    def fill(self) -> Slots:
        """One or two policies, the weighted mean and perhaps the weights to begin from."""
        start, slack, bound = self.start, self.slack, self.bound
        assert start is not None
        assert slack is not None
        assert bound is not None
        common = self.variant == "remargin"  # its script has one denominator and a fixed step
        kind = FairCleanWeights if common else FairWeights
        policies: tuple[ClassPolicy, ...] = (
            kind(start, self.rate, slack=slack, bound=bound, halve_every=self.halve_every),
        )
        if self.variant != "reweight":
            assert self.margin_rate is not None
            assert self.widest is not None
            margins = FairMargins if common else FairMarginsAndStep
            rate, low, high = self.margin_rate, self.narrowest, self.widest
            policies += (margins(start, rate, slack=slack, narrowest=low, widest=high),)
        if self.warmup_beta is not None:
            policies += (WarmUpBeta(start, self.warmup_beta),)
        return Slots(
            policies=policies,
            reduction="common mean" if common else "weighted mean",
            # With equal weights a weighted mean is a mean already; a common one is half of it.
            reduction_start=start if common and start else None,
            begin=self.begin,
        )
