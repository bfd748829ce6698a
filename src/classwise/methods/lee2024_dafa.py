"""DAFA: weight and margin move from easy classes to similar hard ones (Lee et al., ICLR 2024)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from pydantic import Field

from classwise.classes.counts import ClassCounts
from classwise.classes.settings import TRAIN_ROBUST, ClassPolicy, ClassSettings, Feedback, Seen
from classwise.recipe import Among, Method
from classwise.script import Script
from classwise.slots import Slots
from classwise.stages import epoch_of
from classwise.types import PerClass


def similarity_weights(counts: ClassCounts, strength: float) -> PerClass:
    """W_i = 1 + λ·Σ_{j≠i} (S_ij·S_jj if S_ii < S_jj, else −S_ji·S_ii).

    S_ij is the mean probability of class j over the attacked samples of class i. What one class
    of a pair gains the other loses, so the weights add up to K (unless two classes tie). A class
    without samples keeps its weight of 1 and takes no part.
    """
    assert counts.probability is not None
    mean = counts.probability / counts.sizes.clamp(min=1)[:, None]  # S
    own = mean.diagonal()
    harder = own[:, None] < own[None, :]
    gain = mean * own[None, :]  # S_ij · S_jj
    loss = mean.T * own[:, None]  # S_ji · S_ii
    moved = gain.where(harder, -loss) * (counts.present[:, None] & counts.present[None, :])
    moved.fill_diagonal_(0)
    return 1 + strength * moved.sum(1)


@dataclass(frozen=True, slots=True)
class SimilarityWeights(ClassPolicy):
    """Fires once, after the warm-up, and from then on applies the same W at every boundary."""

    writes: ClassVar[frozenset[str]] = frozenset({"label_weight", "margin", "step"})
    strength: float  # λ
    start: float
    floor: float
    # The epoch that `start` means, once the length of the run is known.
    first: int | None = field(default=None, repr=False)
    weights: PerClass | None = field(default=None, repr=False)  # W

    def needs(self, epoch: int) -> frozenset[Seen]:
        """Training statistics of the last warm-up epoch."""
        due = epoch > 0 if self.first is None else epoch == self.first
        return frozenset({TRAIN_ROBUST}) if due else frozenset()

    def details(self, epoch: int) -> frozenset[str]:
        """Their summed softmax."""
        return frozenset({"probability"}) if self.needs(epoch) else frozenset()

    def update(
        self, settings: ClassSettings, feedback: Feedback
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Scale label weight, margin and step by W once there is one."""
        first, weights = self.first, self.weights
        if first is None:
            first = max(1, epoch_of(self.start, feedback.epochs))
        if feedback.epoch == first:
            found = similarity_weights(feedback.counts[TRAIN_ROBUST], self.strength)
            weights = found.clamp(min=self.floor)  # a negative margin or weight has no meaning
        after = replace(self, first=first, weights=weights)
        if weights is None:
            return settings, after
        scale = weights.to(settings.margin)
        return replace(
            settings,
            label_weight=settings.label_weight * scale,
            margin=settings.margin * scale,
            step=settings.step * scale,
        ), after


class DAFA(Method):
    """One weight per class, set once after a warm-up, which favours hard classes with easy twins.

    W_k multiplies the label loss, the margin and the attack's step; the divergence of TRADES
    keeps its weight.
    """

    name: ClassVar[str] = "dafa"
    paper: ClassVar[str] = "Lee et al., ICLR 2024"

    strength: Annotated[float, Field(ge=0)] = 1.0  # λ; 1.5 on CIFAR-100
    start: Annotated[float, Field(ge=0)] = 70 / 110  # epoch, or fraction of the run
    floor: Annotated[float, Field(gt=0, le=1)] = 0.1  # least W

    def fill(self) -> Slots:
        """One policy."""
        return Slots(policies=(SimilarityWeights(self.strength, self.start, self.floor),))

    def suggests(self, among: Among) -> Script:
        """DAFA's script; its Nesterov flag is inverted, so Nesterov is on."""
        at = among.base is not None and among.base.name == "at"
        return Script(
            model="resnet18",
            epochs=110,
            drops=(99, 104),
            weight_decay=5e-4,
            nesterov=True,
            # On AT the attack begins and runs as on TRADES.
            base={"batchnorm": "eval"} | ({"start": "gaussian"} if at else {}),
        )
