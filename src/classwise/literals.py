"""Values as people write them, read without evaluating anything, and how large they may be."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import Any

from classwise.errors import ClasswiseError, cut, defused
from classwise.limits import DEEPEST, LARGEST_NUMBER, MOST_LETTERS


@dataclass(frozen=True, slots=True, repr=False)
class Share:
    """One of so many equal parts of an attack's radius, written `eps/4`.

    >>> Share(4), Share(2.5), Share(4).of(0.2)
    (eps/4, eps/2.5, 0.05)
    """

    parts: float

    def of(self, radius: Any) -> Any:
        """That share of a radius, or of many."""
        return radius / self.parts

    def __repr__(self) -> str:
        parts = float(self.parts)
        return f"eps/{int(parts) if parts.is_integer() else parts}"


QUARTER = Share(4)  # the step of every attack that is given none


def check_size(text: str) -> None:
    """Refuse a spelling that is longer or deeper than any that somebody would write.

    >>> check_size("a(" * 99)
    Traceback (most recent call last):
    classwise.errors.ClasswiseError: 'a(a(a(a(a(a(a(a(a(a…' has brackets deeper than 20
    """
    if len(text) > MOST_LETTERS:
        raise ClasswiseError(
            f"{cut(text, 20)!r} has {len(text)} letters; a name with its options has at most "
            f"{MOST_LETTERS}"
        )
    depth = 0
    for letter in text:  # quotes do not matter: nobody opens so many brackets inside of them
        depth += (letter in "([{") - (letter in ")]}")
        if depth > DEEPEST:
            raise ClasswiseError(f"{cut(text, 20)!r} has brackets deeper than {DEEPEST}")


def plain_value(node: ast.expr, text: str) -> Any:
    """What `_literal` reads; whatever a hostile spelling does to it is refused alike."""
    try:
        return _literal(node, text)
    except (RecursionError, TypeError, OverflowError):
        raise ClasswiseError(f"cannot read a value in {cut(text)!r}; write it simpler") from None


def _literal(node: ast.expr, text: str) -> Any:
    """Turn a syntax node into a plain value; anything that would need evaluating is refused."""
    match node:
        case ast.Constant(value=value) if _ordinary(value):
            return value
        case ast.Name(id=word):
            return {"true": True, "false": False, "none": None}.get(word.lower(), word)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = _literal(operand, text)
            if isinstance(number, int | float):
                return -number
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            top, bottom = _literal(left, text), _literal(right, text)
            if isinstance(top, int | float) and isinstance(bottom, int | float) and bottom:
                return _ratio(top, bottom, text)
            number = isinstance(bottom, int | float) and not isinstance(bottom, bool)
            if top == "eps" and number and 0 < bottom < float("inf"):
                return Share(float(bottom))
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item, text) for item in items]
        case ast.Dict(keys=keys, values=values) if all(keys):
            return {
                _literal(k, text): _literal(v, text) for k, v in zip(keys, values, strict=True) if k
            }
        case ast.Attribute() | ast.Call():
            return ast.unparse(node)  # a nested name such as longtail(cifar10(...))
    raise ClasswiseError(
        f"cannot read a value in {cut(text)!r}; use numbers, fractions, words or lists; "
        "what is more than a word stands in quotes, as in name='lite-0'"
    )


def _ratio(top: float, bottom: float, text: str) -> float:
    ratio = top / bottom
    if not math.isfinite(ratio):
        raise ClasswiseError(f"cannot read a value in {cut(text)!r}; its fraction has no end")
    return ratio


def _ordinary(value: Any) -> bool:
    """Whether a constant is a word, a truth, or a number that tables and tensors can hold."""
    if isinstance(value, int | float):
        return math.isfinite(value) and (isinstance(value, float) or abs(value) <= LARGEST_NUMBER)
    return value is None or (isinstance(value, str) and defused(value) == value)
