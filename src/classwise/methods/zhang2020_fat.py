"""FAT: stop the attack soon after a sample is misclassified (Zhang et al., ICML 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from classwise.attacks.stops import CountingWatch, PatientWatch, StopWatch
from classwise.errors import ClasswiseError
from classwise.recipe import Among, Method
from classwise.script import Script
from classwise.slots import Slots
from classwise.stages import Schedule, read_schedule, value_at
from classwise.types import Labels

Rule: TypeAlias = Literal["counter", "original"]


@dataclass(frozen=True, slots=True)
class FriendlyStop:
    """The attack on a sample ends τ errors after the model first gets it wrong."""

    rule: Rule
    patience: int | Schedule  # τ

    def watch(self, labels: Labels, epoch: int, epochs: int) -> StopWatch:
        """Begin with the patience of this epoch."""
        patience = self.patience_at(epoch, epochs)
        kind = CountingWatch if self.rule == "counter" else PatientWatch
        return kind(labels, patience)

    def patience_at(self, epoch: int, epochs: int) -> int:
        """τ in an epoch, counted from 0."""
        return value_at(self.patience, epoch, epochs)


# τ of the original papers' scripts, their epochs as fractions of their runs.
SCHEDULES: dict[str, Schedule] = {
    "trades": ((0, 0), (30 / 85, 1), (50 / 85, 2), (70 / 85, 3)),
    "mart": tuple((20 * tau / 90, tau) for tau in range(5)),
}
ON_AT: Schedule = ((0, 0), (50 / 120, 1), (90 / 120, 2))
_ORIGINAL = {"rule": "original"}
SCRIPTS = {
    "at": Script(
        model="wrn-34-10",
        epochs=120,
        drops=(59, 89, (109, 0.5)),  # to 0.1, 0.01 and 0.005 of the rate
        base={"batchnorm": "eval"},
        own=_ORIGINAL,
    ),
    "trades": Script(model="wrn-34-10", epochs=85, drops=(74, 89), own=_ORIGINAL),
    "mart": Script(model="wrn-34-10", epochs=90, drops=(59, 89), base={"beta": 6.0}, own=_ORIGINAL),
}


class FAT(Method):
    """Stop the attack on a sample soon after it fools the model.

    `counter` is the rule in CFA's code, which made the rows of the papers: a sample moves while
    fewer than τ of its iterates were wrong. `original` is the paper's: only a wrong iterate may
    end the attack. Alone it brings AT; it also works on TRADES and MART, whose Gaussian start the
    original clips to [0, 1].
    """

    name: ClassVar[str] = "fat"
    paper: ClassVar[str] = "Zhang et al., ICML 2020"
    extends: ClassVar[frozenset[str]] = frozenset({"trades", "mart"})
    implies: ClassVar[str | None] = "at"

    rule: Rule = "counter"
    patience: Annotated[
        Annotated[int, Field(ge=0)]
        | tuple[tuple[Annotated[float, Field(ge=0)], Annotated[int, Field(ge=0)]], ...]
        | None,
        BeforeValidator(read_schedule),
    ] = None  # τ; None is 3 for the counter, the scripts' schedule for the original
    noise: Annotated[float, Field(ge=0)] | None = None  # ω, added to every update
    # in place of TRADES' or MART's own; None is clipped for the original there, else the base's
    start: Literal["gaussian", "clipped gaussian"] | None = None
    last_look: bool = False  # CFA's code forwards the last iterates once more, for BatchNorm to see

    def resolve(self, among: Among) -> Method:
        """Take the patience, the noise and the start of the papers for this rule and base."""
        found: dict[str, Any] = {}
        plain = self.rule == "counter"
        if self.patience is None:
            found["patience"] = 3 if plain else among.first(SCHEDULES, ON_AT)
        if self.noise is None:
            found["noise"] = 0.0 if plain else among.first(dict.fromkeys(SCHEDULES, 0.0), 0.001)
        if self.start is None and not plain:
            found["start"] = among.first(dict.fromkeys(SCHEDULES, "clipped gaussian"), None)
        if self.last_look and among.option("at", "batchnorm") != "train":
            raise ClasswiseError(
                "fat(last_look=true) shows BatchNorm the last iterates, but this attack leaves its "
                "statistics alone; leave it out, or use at(batchnorm=train)"
            )
        return self.model_copy(update=found)

    def suggests(self, among: Among) -> Script:
        """The script for this base; its WRN-32-10 has five blocks a stage, as ours of 34."""
        name = among.base.name if among.base else "at"
        return SCRIPTS.get(name, SCRIPTS["at"])

    def fill(self) -> Slots:
        """Fill the stop rule and perhaps the start; everything else stays the base's."""
        patience = 3 if self.patience is None else self.patience
        stop = FriendlyStop(self.rule, patience)
        look = self.last_look or None
        return Slots(stop=stop, jitter=self.noise or None, start=self.start, last_look=look)
