"""How people write things: `resnet9(width=16)`, `trades(beta=6)+ccm`, `8/255`.

One small grammar serves recipes, models, data sources and attacks. Values are parsed as
literals (numbers, fractions, shares of eps, strings, booleans, lists, dicts, bare words), never
evaluated.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from classwise.errors import ClasswiseError, cut, defused
from classwise.limits import DEEPEST, LARGEST_NUMBER
from classwise.literals import QUARTER as QUARTER
from classwise.literals import Share as Share
from classwise.literals import check_size, plain_value

_CALL = re.compile(r"\s*(?P<name>[A-Za-z_][\w.:/-]*)\s*(?:\((?P<inside>.*)\))?\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Call:
    """A name with its arguments."""

    name: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


def parse_call(text: str) -> Call:
    """Read one name with optional arguments.

    >>> parse_call("resnet9(width=16)")
    Call(name='resnet9', args=(), options={'width': 16})
    >>> parse_call("longtail(cifar10, factor=1/50)").options
    {'factor': 0.02}
    """
    check_size(text)
    match = _CALL.fullmatch(text)
    if not match:
        raise ClasswiseError(f"cannot read {cut(text)!r}; write a name, or name(option=value)")
    inside = match["inside"]
    if inside is None or not inside.strip():
        return Call(match["name"])
    try:
        tree = _syntax(f"_({inside})")
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        raise ClasswiseError(
            f"cannot read the options in {cut(text)!r}; write option=value"
        ) from None
    if (
        not isinstance(tree, ast.Call)
        or not isinstance(tree.func, ast.Name)
        or any(word.arg is None for word in tree.keywords)
    ):
        raise ClasswiseError(f"cannot read the options in {cut(text)!r}; write option=value")
    args = tuple(plain_value(node, text) for node in tree.args)
    options: dict[str, Any] = {}
    for word in tree.keywords:
        if word.arg in options:
            raise ClasswiseError(f"{cut(text)!r} gives {word.arg} twice; keep one")
        options[str(word.arg)] = plain_value(word.value, text)
    return Call(match["name"], args, options)


def parse_value(text: str) -> Any:
    """Read one value: `0.3`, `8/255`, `eps/4`, `true`, `[1, 2]`, or a bare word.

    >>> parse_value("8/255") == 8 / 255, parse_value("cosine"), parse_value("true")
    (True, 'cosine', True)
    >>> parse_value("eps/4") == Share(4)
    True
    """
    check_size(text)
    try:
        tree = _syntax(text.strip())
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        return text
    try:
        return plain_value(tree, text)
    except ClasswiseError:
        return text


def _syntax(text: str) -> ast.expr:
    """How a text is built; Python's advice on style (`1else`) is not for our users."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)  # the same before Python 3.12
        return ast.parse(text, mode="eval").body


def split_outside_brackets(text: str, separator: str) -> list[str]:
    """Split at a separator that is not inside brackets or quotes.

    >>> split_outside_brackets("a(x=[1,2]), b", ",")
    ['a(x=[1,2])', ' b']
    """
    check_size(text)
    pieces, depth, quote, begin = [], 0, "", 0
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        if letter == separator and depth == 0 and not quote:
            pieces.append(text[begin:place])
            begin = place + 1
    return [*pieces, text[begin:]]


def average_and_keep(weights: str) -> tuple[str, str]:
    """Divide the name of kept weights into the average's name, if any, and which they are.

    >>> average_and_keep("last"), average_and_keep("ema-best"), average_and_keep("ema-epoch-0010")
    (('', 'last'), ('ema', 'best'), ('ema', 'epoch-0010'))
    """
    average, _, keep = weights.rpartition("-")
    if average.rpartition("-")[2] == "epoch":
        average, _, which = average.rpartition("-")
        return average, f"{which}-{keep}"
    return average, keep


def parse_eps(value: float | int | str, too_wide: float = 1.0) -> float:
    """Read an attack radius in image units; a bare 8 is refused, since images live in [0, 1].

    Where radii of 1 and more are ordinary, as under L2, nothing is `too_wide`.

    >>> parse_eps("8/255") == 8 / 255, parse_eps(0.03)
    (True, 0.03)
    >>> parse_eps("1.5", too_wide=float("inf"))
    1.5
    >>> parse_eps(8)
    Traceback (most recent call last):
    classwise.errors.ClasswiseError: eps is 8.0, but images live in [0, 1]; did you mean 8/255?
    """
    number = parse_value(value) if isinstance(value, str) else value
    number = number.item() if hasattr(number, "item") else number  # numpy's and torch's numbers
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ClasswiseError(
            f"eps is {said_value(value)}; write a fraction such as 8/255 or a number such as 0.03"
        )
    if not 0 <= number <= LARGEST_NUMBER:
        raise ClasswiseError(f"eps is {said_value(value)}; it must be 0 or more, and finite")
    if number >= too_wide:
        hint = f"; did you mean {number:g}/255?" if number <= 255 else ""
        raise ClasswiseError(f"eps is {float(number)}, but images live in [0, 1]{hint}")
    return float(number)


def said_value(value: Any) -> str:
    """A value for a message; Python itself refuses to write whole numbers of 4300 digits."""
    whole = isinstance(value, int) and abs(value) > LARGEST_NUMBER
    return "a number of very many digits" if whole else cut(repr(value))


def spell_call(name: str, options: Mapping[str, Any]) -> str:
    """A name with its options, as a person would write them.

    >>> spell_call("at", {"steps": ((0.0, 1), (0.4, 3)), "start": "none"})
    'at(steps={0: 1, 0.4: 3}, start=none)'
    >>> spell_call("at", {})
    'at'
    """
    told = ", ".join(f"{key}={spell_value(value)}" for key, value in options.items())
    return f"{name}({told})" if told else name


def spell_value(value: Any) -> str:
    """A schedule as a table from epochs or fractions; anything else as it is."""
    if not value or not isinstance(value, tuple) or not all(map(_is_pair, value)):
        return str(value)
    return "{" + ", ".join(f"{when:g}: {then}" for when, then in value) + "}"


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and [type(one) for one in value] in ([float, int], [int, int])


def spell_eps(radius: float) -> str:
    """Write a radius as every text for people does: 8/255 where it is one, else a plain number.

    Above 16 a fraction of 255 is no longer how people write it: 0.2 stays 0.2.

    >>> spell_eps(8 / 255), spell_eps(0.2), spell_eps(0.0), spell_eps(1.5)
    ('8/255', '0.2', '0', '1.5')
    """
    levels = 255 * radius
    whole = abs(levels - round(levels)) < 2e-6 and 0.5 < levels < 16.5
    return f"{round(levels)}/255" if whole else f"{radius:.6g}"


_EPS = re.compile(r"(?<![\w-])eps=([^\s,()]+)")


def same_condition(one: str, other: str) -> bool:
    """Whether two labels name one condition, however they spell its eps.

    Four digits of a fraction are enough, as labels used to be written.

    >>> same_condition("pgd-20 eps=0.03137 seed=0", "pgd-20 eps=8/255 seed=0")
    True
    >>> same_condition("fgsm(eps=0.2)", "fgsm(eps=51/255)"), same_condition("fgsm", "fgsm eps=0.1")
    (True, False)
    """
    if one == other:
        return True
    if _EPS.sub("eps", one) != _EPS.sub("eps", other):
        return False
    pairs = zip(_EPS.findall(one), _EPS.findall(other), strict=True)
    return all(_same_number(parse_value(here), parse_value(there)) for here, there in pairs)


def conditions_meant(name: str, labels: Iterable[str]) -> list[str]:
    """The conditions that a name means: the one of that label, or all of that attack."""
    known = list(labels)
    exact = [label for label in known if label == name]
    same = exact or [label for label in known if same_condition(label, name)]
    return same or [label for label in known if same_condition(label.partition(" ")[0], name)]


def _same_number(one: Any, other: Any) -> bool:
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return math.isclose(one, other, rel_tol=5e-4) if numbers else one == other


def is_plain(value: Any, deepest: int = DEEPEST) -> bool:
    """Whether a setting is a number, a word, or a list of such."""
    if isinstance(value, list | tuple):
        return deepest > 0 and all(is_plain(item, deepest - 1) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def few_names(names: Sequence[str], most: int = 3) -> str:
    """Name the first few and count the rest.

    >>> few_names(["ant", "bee", "cat", "dog", "eel"])
    'ant, bee, cat and 2 more'
    """
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def one_line(text: str, most: int | None = None) -> str:
    r"""Text without line breaks, and cut to so many letters.

    >>> one_line("a\n b"), one_line("abcdef", 4)
    ('a b', 'abc…')
    """
    words = defused(" ".join(text.split()))
    return words if most is None else cut(words, most)
