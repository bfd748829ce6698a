"""Signs of trouble, and the one that every audit looks for: a model that changes its answers."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from classwise.attacks.suite import ask
from classwise.types import Images, LogitModel, Logits

FEW = 16  # images on which every audit asks twice


class Flag(NamedTuple):
    """A sign of trouble: its name, the finding in words, and the classes where it is certain."""

    name: str
    words: str
    classes: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f" ({', '.join(self.classes)})" if self.classes else ""
        return f"{self.name}: {self.words}{where}"


def random_flags(model: LogitModel, images: Images, logits: Logits, width: int) -> list[Flag]:
    """Ask a second time about the same images; `logits` are the first answers."""
    again = ask(model, images, width, logits.shape[1])
    differs = (again - logits).abs().amax(1) > tolerance(logits)
    if not bool(differs.any()):
        return []
    words = (
        f"two passes over the same images differ for {int(differs.sum())} of {len(logits)}, so a "
        "verdict is a matter of luck; audit the mean of several passes (--repeat 10), or attack "
        "with autoattack-rand"
    )
    return [Flag("random", words)]


def tolerance(logits: Logits) -> Tensor:
    """How far rounding may move the logits of each image."""
    return 1e-4 * (1 + logits.abs().amax(1))
