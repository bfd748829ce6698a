"""The slots of the training step: what a method may fill, and what stands there otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer
from torch import Tensor

from classwise.attacks.carried import Carry
from classwise.attacks.inner import InnerAttack, Reference, Start, View, with_stop
from classwise.attacks.stops import StopRule
from classwise.classes.counts import TAIL_FROM, ClassCounts
from classwise.classes.settings import ClassPolicy, ClassSettings
from classwise.draws import Draws
from classwise.models.asking import BatchNormMode
from classwise.objective import Mix, Objective, Reduction, Regulariser, StepRule
from classwise.spelling import QUARTER, Share, parse_value
from classwise.stages import Schedule, read_schedule
from classwise.types import Images, Labels


def _read_step(value: Any) -> Any:
    read = parse_value(value) if isinstance(value, str) else value
    if isinstance(read, str):
        raise ValueError("write a number such as 2/255, or a share of the radius such as eps/4")
    return QUARTER if read is None else read


# A method's option for the step of its attack; a share is kept in records as it is written.
AttackStep: TypeAlias = Annotated[
    Annotated[float, Field(gt=0, lt=1)] | Share,
    BeforeValidator(_read_step),
    PlainSerializer(lambda step: str(step) if isinstance(step, Share) else step),
]

# And for how many steps it has: a number, or one that changes in the course of a run.
AttackSteps: TypeAlias = Annotated[
    Annotated[int, Field(ge=0)]
    | tuple[tuple[Annotated[float, Field(ge=0)], Annotated[int, Field(ge=0)]], ...],
    BeforeValidator(read_schedule),
]


class Augment(Protocol):
    """A whole-batch transform of training images, keyed by sample index."""

    def __call__(self, images: Images, index: Labels, seed: int, epoch: int) -> Images:
        """Transform a batch."""


class Sampler(Protocol):
    """Which training samples an epoch visits, and in which order."""

    def order(self, labels: Labels, draws: Draws) -> Tensor:
        """Row numbers; a row may come more than once."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Lets an average take in an epoch only if validation robustness is fair enough."""

    threshold: float  # δ
    on: Literal["worst", "tail"] = "worst"  # the worst class, or the mean of the worst 10 %

    def value(self, valid: ClassCounts) -> float:
        """What it looks at."""
        return valid.worst if self.on == "worst" else valid.tail()

    def opens(self, value: float, best: float) -> bool:  # noqa: ARG002
        """Whether the value reaches the threshold, whatever the best so far."""
        return value >= self.threshold


@dataclass(frozen=True, slots=True)
class ShareGate:
    """Opens at a share of the best value seen so far, so that no level need be known beforehand."""

    share: float

    def value(self, valid: ClassCounts) -> float:
        """The mean of the worst 10 % of the classes; of fewer than 20, the worst class."""
        return valid.tail() if len(valid.confusion) >= TAIL_FROM else valid.worst

    def opens(self, value: float, best: float) -> bool:
        """Whether the value comes near the best, its own among them; never while that is 0."""
        return best > 0 and value >= self.share * best


@dataclass(frozen=True, slots=True)
class Average:
    """A passive weight average, updated once per epoch: θ̄ ← d·θ̄ + (1 − d)·θ."""

    name: str
    decay: float | None  # d; None weighs all epochs alike
    start: float  # epoch, or fraction of the run
    gate: Gate | ShareGate | None = None


@dataclass(frozen=True, slots=True)
class Keep:
    """A passive choice of the weights to keep, made on validation data only."""

    name: str
    score: Literal["latest", "overall", "overall+worst"]


KEEPS = (
    Keep("last", "latest"),
    Keep("best", "overall+worst"),
    Keep("best_overall", "overall"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """What one method brings; None and () leave a slot to the others."""

    augment: Augment | None = None
    noise: float | None = None  # σ of Gaussian noise on the augmented images
    sampler: Sampler | None = None
    reference: Reference | None = None  # filled where training attacks
    start: Start | None = None
    steps: int | Schedule | None = None
    step: float | Share | None = None
    stop: StopRule | None = None
    jitter: float | None = None
    last_look: bool | None = None  # the last iterates are forwarded once more
    carry: Carry | None = None  # where the attack begins is where an earlier one ended
    batchnorm: BatchNormMode | None = None
    extra_views: tuple[View, ...] = ()
    mix: Mix | None = None
    objective: Objective | None = None
    beta: float | None = None
    reduction: Reduction | None = None
    reduction_start: float | None = None  # epoch, or fraction of the run; a plain mean before
    regularisers: tuple[Regulariser, ...] = ()
    step_rule: StepRule | None = None
    head: Literal["linear", "cosine"] | None = None
    head_scale: float | None = None  # of a cosine head's logits
    extra_outputs: int | None = None  # M, behind the K classes
    head_path: str | None = None  # the layer of a user's own model that has them
    begin: str | None = None  # run or weights file to begin from
    teacher: str | None = None  # weights file of a frozen model
    policies: tuple[ClassPolicy, ...] = ()
    averages: tuple[Average, ...] = ()
    keeps: tuple[Keep, ...] = ()

    @property
    def inner(self) -> InnerAttack | None:
        """The attack inside training, put together from its parts."""
        if self.reference is None:
            return None
        return InnerAttack(
            reference=self.reference,
            start=self.start or "uniform",
            steps=10 if self.steps is None else self.steps,
            batchnorm=self.batchnorm or "eval",
            views=with_stop(self.extra_views, self.stop),
            jitter=self.jitter or 0.0,
            last_look=bool(self.last_look),
        )

    def alike(self, num_classes: int, eps: float) -> ClassSettings:
        """Settings that treat every class alike at this radius."""
        step = QUARTER if self.step is None else self.step
        return ClassSettings.uniform(
            num_classes,
            margin=eps,
            step=step.of(eps) if isinstance(step, Share) else step,
            beta=self.beta or 0.0,
        )


# Several methods may add to these; everything else has one owner.
COLLECTIONS = ("extra_views", "regularisers", "policies", "averages", "keeps")

# What stands in a slot that no method fills, in the words `classwise recipe` prints.
UNFILLED: dict[str, Any] = {
    "augment": "crop and flip, as the data allow",
    "sampler": "every image once, shuffled",
    "step": QUARTER,
    "stop": "never",
    "reduction": "mean",
    "step_rule": "plain",
    "keeps": KEEPS,
}
ATTACK_SLOTS = ("step", "stop")  # unfilled ones are worth a line only where training attacks
