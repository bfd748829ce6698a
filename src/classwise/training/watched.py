"""What a run looks at without learning from it: `test:pgd-10(eps=8/255)@fawa`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from classwise.attacks.names import named_condition
from classwise.classes.counts import ClassCounts
from classwise.classes.settings import Seen
from classwise.errors import ClasswiseError, unknown
from classwise.slots import Average


class Watched(NamedTuple):
    """A split under an attack, at the live weights or at an average of them."""

    seen: Seen
    average: str = ""  # empty: the live weights

    def __str__(self) -> str:
        at = f"@{self.average}" if self.average else ""
        return f"{self.seen.split}:{self.seen.attack}{at}"


def parse_watched(text: str, splits: Sequence[str] = ("train", "test")) -> Watched:
    """Read SPLIT:ATTACK, or SPLIT:ATTACK@AVERAGE.

    >>> str(parse_watched("test:pgd-10( eps = 8/255 ) @ ema"))
    'test:pgd-10(eps=8/255)@ema'
    """
    split, colon, rest = text.strip().partition(":")
    attack, at, average = rest.partition("@")
    if not colon or split not in splits or (at and not average.strip()):
        raise ClasswiseError(
            f"watch {text!r}: write SPLIT:ATTACK with {' or '.join(splits)}, as in test:pgd-20, "
            "or SPLIT:ATTACK@AVERAGE, as in test:pgd-20@ema"
        )
    return Watched(Seen(split, named_condition(attack)[0]), average.strip())


def rates(found: Mapping[Seen, ClassCounts], average: str) -> dict[str, Any]:
    """What watch.jsonl says of these looks at one average, or at the live weights."""
    return {str(Watched(seen, average)): counts.rates for seen, counts in found.items()}


def check_averages(watched: Sequence[Watched], averages: Sequence[Average]) -> None:
    """Refuse to watch an average that the recipe does not have."""
    known = [average.name for average in averages]
    for one in watched:
        if one.average and one.average not in known:
            some = known or ["none; add ema, swa or fawa to the recipe"]
            raise unknown(f"average in watch {str(one)!r}", one.average, some)
