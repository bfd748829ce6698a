"""Fast: one long step from a random start, under guard (Wong et al., ICLR 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from classwise.classes.settings import ClassPolicy, ClassSettings, Feedback, Seen
from classwise.recipe import Among, Method
from classwise.slots import AttackStep, Slots
from classwise.spelling import Share
from classwise.types import PerClass

PGD, FGSM = Seen("valid", "pgd-10"), Seen("valid", "fgsm")
SURE = 3.0  # standard errors: with a few validation images a class falls far by chance
SOME = 5  # classes that a warning names


@dataclass(frozen=True, slots=True)
class OverfittingGuard(ClassPolicy):
    """Gives a class many steps while it stands against one step only.

    Class k is overfitted if its PGD accuracy on validation images lies more than `drop`, and more
    than chance would have it, below the best so far, while its FGSM accuracy is not down by half
    of `drop` since then. Its images are then attacked with `rescue` steps for each one, until its
    PGD accuracy is back within half of `drop`.
    """

    writes: ClassVar[frozenset[str]] = frozenset({"finer"})
    drop: float
    rescue: int
    names: Sequence[str] = field(default=(), repr=False)
    # PGD accuracy of each class, the highest so far, and the FGSM accuracy of that epoch
    best: PerClass | None = field(default=None, repr=False)
    then: PerClass | None = field(default=None, repr=False)
    fallen: Tensor | None = field(default=None, repr=False)  # who is attacked with many steps
    news: str = field(default="", repr=False)  # what happened at the last boundary

    def needs(self, epoch: int) -> frozenset[Seen]:
        """Both accuracies on validation images, once there is an epoch behind us."""
        return frozenset({PGD, FGSM}) if epoch else frozenset()

    @property
    def remarks(self) -> tuple[tuple[str, str], ...]:
        """Which classes have just been found overfitted."""
        return ((self.news, self.news),) if self.news else ()

    def bind(self, class_names: Sequence[str]) -> ClassPolicy:
        """Note the names, for words."""
        return replace(self, names=tuple(class_names))

    def update(
        self, settings: ClassSettings, feedback: Feedback
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Compare with the best epoch of each class."""
        if not feedback.epoch:
            return settings, self
        counts = feedback.counts[PGD]
        hard, easy = counts.known_accuracy, feedback.counts[FGSM].known_accuracy
        if self.best is None or self.then is None or self.fallen is None:
            begun = replace(self, best=hard, then=easy, fallen=torch.zeros_like(counts.present))
            return settings, begun
        lost = self.best - hard
        sure = SURE * _standard_error(self.best, hard, counts.sizes)
        found = (lost > self.drop) & (lost > sure) & (easy > self.then - self.drop / 2)
        fallen = (self.fallen & (lost > self.drop / 2)) | found
        better = hard > self.best
        after = replace(
            self,
            best=torch.where(better, hard, self.best),
            then=torch.where(better, easy, self.then),
            fallen=fallen,
            news=self._words(found & ~self.fallen, hard, easy, feedback.epoch),
        )
        if not bool(fallen.any()):
            return settings, after
        finer = torch.where(fallen, float(self.rescue), 1.0).to(settings.margin)
        return replace(settings, finer=finer), after

    def _words(self, new: Tensor, hard: PerClass, easy: PerClass, epoch: int) -> str:
        if self.best is None or not bool(new.any()):
            return ""
        which: list[int] = new.nonzero().flatten().tolist()
        told = [
            f"{self.names[k] if self.names else k} (PGD {100 * self.best[k]:.0f} -> "
            f"{100 * hard[k]:.0f} %, FGSM {100 * easy[k]:.0f} %)"
            for k in which[:SOME]
        ]
        more = f" and {len(which) - SOME} more classes" if len(which) > SOME else ""
        return (
            f"after epoch {epoch} only single steps fail to break {', '.join(told)}{more} on "
            f"validation images: catastrophic overfitting; these classes are attacked with "
            f"{self.rescue} steps until they are back"
        )


def _standard_error(one: PerClass, other: PerClass, sizes: PerClass) -> PerClass:
    """Of the difference of two shares of n each, with one hit and one miss added to both."""
    n = sizes.to(one) + 2
    shares = [(sizes * share + 1) / n for share in (one, other)]
    variances = [share * (1 - share) / n for share in shares]
    return torch.stack(variances).sum(0).sqrt()


class Fast(Method):
    """Attack with a single step of 5/4 of the radius from a random start, watched class by class.

    One step can be learnt by heart: then FGSM fails and PGD breaks every image. The guard looks
    for that on validation images and gives classes that fell so many steps instead, as AT has.
    Alone it brings AT; it also works on TRADES and MART.
    """

    name: ClassVar[str] = "fast"
    paper: ClassVar[str] = "Wong et al., ICLR 2020"
    extends: ClassVar[frozenset[str]] = frozenset({"at", "trades", "mart"})
    implies: ClassVar[str | None] = "at"

    step: AttackStep = Share(0.8)  # α, a number or a share of eps: 5/4 of it
    guard: bool = True
    drop: Annotated[float, Field(gt=0, lt=1)] = 0.2  # fall in PGD accuracy that alarms the guard
    rescue: Annotated[int, Field(ge=2)] = 10  # steps of a class that fell

    def resolve(self, among: Among) -> Method:
        """Refuse options of the base's attack that these replace."""
        among.check_left(self.name, ("steps", "step", "start"))
        return self

    def fill(self) -> Slots:
        """Fill the attack, and perhaps a policy that watches it."""
        guard = OverfittingGuard(self.drop, self.rescue)
        return Slots(
            start="uniform", steps=1, step=self.step, policies=(guard,) if self.guard else ()
        )
