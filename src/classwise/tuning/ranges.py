"""What may vary: `trades.beta=1..10, lr=log:0.01..0.4, schedule=step|cosine`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from classwise.errors import ClasswiseError, cut
from classwise.recipe import Recipe
from classwise.spelling import parse_value, split_outside_brackets
from classwise.tuning.start import Start

_HOW = "write OPTION=LOW..HIGH, OPTION=log:LOW..HIGH or OPTION=A|B|C"
# What a trial is judged by must be the same for all of them, or their figures say nothing.
JUDGING = ("data", "valid", "valid_attack", "judge_eps", "norm", "epochs", "subset", "seed")
IDLE = ("watch", "watch_every", "watch_share", "keep_every", "compile")
DIGITS = 4  # of a drawn number, so that people can write it again


@dataclass(frozen=True)
class Range:
    """Numbers between two ends, which belong to it."""

    option: str
    low: float
    high: float
    log: bool = False  # drawn evenly by its logarithm
    whole: bool = False

    @property
    def corners(self) -> tuple[Any, ...]:
        """Values to try before anything runs."""
        return (self.low, self.high)

    def tidy(self, value: Any) -> Any:
        """A drawn number with few digits, still inside.

        >>> Range("lr", 0.01, 0.4).tidy(0.123456)
        0.1235
        """
        if self.whole:
            return int(value)
        return min(max(float(f"{value:.{DIGITS}g}"), float(self.low)), float(self.high))

    def drawn_as(self, value: Any) -> float | None:
        """How a value would have been drawn; None where it does not lie inside."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return value if number and self.low <= value <= self.high else None

    def __str__(self) -> str:
        return f"{self.option}={'log:' * self.log}{self.low:g}..{self.high:g}"


@dataclass(frozen=True)
class Choice:
    """One of several values, kept as they were written."""

    option: str
    words: tuple[str, ...]

    @property
    def corners(self) -> tuple[Any, ...]:
        """Values to try before anything runs."""
        return tuple(map(parse_value, self.words))

    def tidy(self, word: Any) -> Any:
        """The value of a word.

        >>> Choice("schedule", ("step", "cosine")).tidy("cosine")
        'cosine'
        """
        return parse_value(word)

    def drawn_as(self, value: Any) -> str | None:
        """How a value would have been drawn; None where it is not among them."""
        return next((word for word in self.words if value in (word, parse_value(word))), None)

    def __str__(self) -> str:
        return f"{self.option}={'|'.join(self.words)}"


Varied = Range | Choice


def parse_search(text: str, start: Start) -> tuple[Varied, ...]:
    """Read what may vary, and refuse what the recipe, or sense, does not allow.

    >>> [str(one) for one in parse_search("trades.beta=1..10,lr=log:0.01..0.4", Start("trades"))]
    ['trades.beta=1..10', 'lr=log:0.01..0.4']
    """
    found: list[Varied] = []
    for piece in split_outside_brackets(text, ","):
        option, equals, words = (part.strip() for part in piece.partition("="))
        if not (option and equals and words):
            raise ClasswiseError(f"--search {cut(piece.strip())!r}: {_HOW}")
        if any(one.option == option for one in found):
            raise ClasswiseError(f"--search names {option} twice; keep one")
        found.append(fitted(_read(option, words), start))
    return tuple(found)


def _read(option: str, words: str) -> Varied:
    said = f"--search {option}={cut(words)}"
    log = words.startswith("log:")
    low, dots, high = words.removeprefix("log:").partition("..")
    if not dots:
        choices = tuple(one.strip() for one in split_outside_brackets(words, "|"))
        if log or len(choices) < 2:
            hint = f"there is nothing to search; say --set {option}={cut(words)}, or {_HOW}"
            raise ClasswiseError(f"{said}: {_HOW if log else hint}")
        if len(set(choices)) < len(choices):
            raise ClasswiseError(f"{said} names a value twice; keep one")
        return Choice(option, choices)
    ends = [parse_value(end.strip()) for end in (low, high)]
    for end in ends:
        number = isinstance(end, int | float) and not isinstance(end, bool)
        if not number or not math.isfinite(end):
            raise ClasswiseError(f"{said}: {cut(end)!r} is no number; {_HOW}")
    if not ends[0] < ends[1]:
        raise ClasswiseError(f"{said} holds nothing: the lower end comes first, and they differ")
    if log and ends[0] <= 0:
        raise ClasswiseError(f"{said}: a logarithm needs a lower end above 0; leave log: out")
    return Range(option, ends[0], ends[1], log)


def fitted(one: Varied, start: Start) -> Varied:
    """The same, whole where the option is; refused where the recipe refuses an end of it."""
    if one.option in JUDGING:
        raise ClasswiseError(
            f"--search {one.option}: all trials are judged alike, and {one.option} would change "
            f"that; set it once with --set {one.option}=VALUE"
        )
    if one.option in IDLE:
        raise ClasswiseError(f"--search {one.option}: it changes no result; leave it out")
    for value in one.corners:
        _try(one, value, start)
    if isinstance(one, Range) and isinstance(one.low, int) and isinstance(one.high, int):
        inside = one.low + 0.37 * (one.high - one.low)  # no whole number, if 100 does not divide it
        fraction = inside if inside % 1 else one.low + 0.5
        try:
            start.made({one.option: fraction})
        except ClasswiseError:
            return Range(one.option, one.low, one.high, one.log, whole=True)
    return one


def _try(one: Varied, value: Any, start: Start) -> None:
    try:
        start.made({one.option: value})
    except ClasswiseError as reason:
        words = str(reason).removeprefix(f"--set {one.option}: ")
        raise ClasswiseError(f"--search {one}: {words}") from None


def default_search(start: Start) -> tuple[Varied, ...]:
    """Sensible ranges for the options of the methods in the recipe, and the learning rate."""
    recipe, config = start.made({})
    written = {f"{one.name}.{option}" for one in recipe.given for option in one.model_fields_set}
    found: list[Varied] = [
        one
        for one in DEFAULTS
        if one.option not in written and isinstance(_resolved(one.option, recipe), int | float)
    ]
    if "lr" not in start.training:
        found.append(
            Range("lr", float(f"{config.lr / 5:.2g}"), float(f"{config.lr * 4:.2g}"), True)
        )
    return tuple(_fitting(found, start))


def _resolved(option: str, recipe: Recipe) -> Any:
    name, _, own = option.rpartition(".")
    return recipe.canonical.get(name, {}).get(own)


def _fitting(found: Sequence[Varied], start: Start) -> Iterator[Varied]:
    """Those that the company of a method does not rule out."""
    for one in found:
        try:
            yield fitted(one, start)
        except ClasswiseError:
            continue


# Around the papers' values; what is written in the recipe or by --set stays as it is.
DEFAULTS = (
    Range("trades.beta", 1.0, 10.0, log=True),
    Range("mart.beta", 1.0, 10.0, log=True),
    Range("ccm.margin_floor", 0.2, 0.9),
    Range("ccr.beta_floor", 0.1, 0.9),
    Range("cfa.margin_floor", 0.2, 0.9),
    Range("cfa.beta_floor", 0.1, 0.9),
    Range("ema.decay", 0.9, 0.999),
    Range("fawa.decay", 0.5, 0.95),
    Range("cfa.decay", 0.5, 0.95),
    Range("awp.size", 0.001, 0.02, log=True),
)
