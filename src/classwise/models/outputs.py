"""Which part of a model's answer are the logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from classwise.errors import ClasswiseError, cut

KINDS = ("probabilities", "log-probabilities")


@dataclass(frozen=True, slots=True)
class Output:
    """A part of an answer by its name or number, and what its numbers are.

    Of probabilities the logarithm is taken: softmax(log p) = p. Those too small for the kind of
    number, below 1.2e-38 in float32, count as that, and have no slope. Logarithms of probabilities
    are logits as they are.

    >>> Output(None, "probabilities")(torch.tensor([[1.0, 0.0]]).exp())[0, 0]
    tensor(1.)
    """

    which: str | int | None = None  # None: the answer is found, or is it all
    kind: str = ""
    flat: bool = False  # (n, K, 1, 1) is (n, K)

    @classmethod
    def of(cls, said: Any) -> Output:
        """Read a name, a number, `probabilities`, `log-probabilities` or NAME:probabilities.

        >>> Output.of("head:probabilities")
        Output(which='head', kind='probabilities', flat=False)
        """
        if said is None or isinstance(said, cls):
            return said or cls()
        if isinstance(said, int) and not isinstance(said, bool):
            return cls(said)
        if not isinstance(said, str) or not said:
            raise ClasswiseError(
                f"output {said!r}: give a name, a number counted from 0, {' or '.join(KINDS)}"
            )
        name, _, kind = said.rpartition(":") if said.endswith(KINDS) else (said, "", "")
        which = int(name) if name.lstrip("-").isdecimal() else name or None
        return cls(which, kind)

    def __call__(self, answer: Any) -> Any:
        """Logits, out of whatever the model gave."""
        found = answer if self.which is None else _part(answer, self.which)
        if self.flat:
            found = found.reshape(found.shape[0], -1)
        if self.kind != "probabilities":
            return found
        if isinstance(found, Tensor):
            return found.clamp(min=torch.finfo(found.dtype).tiny).log()
        return np.log(np.maximum(found, np.finfo(found.dtype).tiny))

    def __bool__(self) -> bool:
        return self.which is not None or self.flat or self.kind == "probabilities"

    def __str__(self) -> str:
        where = "" if self.which is None else f"taken from its output {self.which!r}"
        made = "the logarithms of its probabilities" if self.kind == "probabilities" else ""
        return ", ".join(part for part in (where, made) if part)

    def found_in(self, answer: Any, count: int, num_classes: int | None) -> Output:
        """The same with its place, for an answer about `count` images; doubt is refused."""
        parts = parts_of(answer)
        if parts is None:
            if self.which is not None:
                raise ClasswiseError(
                    f"output {self.which!r}: the model gives one tensor, not several; leave it out"
                )
            chosen = self
        elif self.kind and self.which is None and self.kind in parts:
            chosen = replace(self, which=self.kind)
        elif self.which is not None:
            chosen = self
            if isinstance(self.which, int) and not isinstance(answer, Mapping):
                inside = -len(parts) <= self.which < len(parts)
            else:
                inside = str(self.which) in parts
            if not inside:
                raise ClasswiseError(_several(answer, parts, f"there is no {self.which!r}"))
        else:
            chosen = replace(self, which=_likely(answer, parts, count, num_classes))
        values = answer if chosen.which is None else _part(answer, chosen.which)
        shape = tuple(getattr(values, "shape", ()))
        if len(shape) > 2 and shape[0] == count and set(shape[2:]) == {1}:
            chosen = replace(chosen, flat=True)
        chosen._check(values)
        return chosen

    def _check(self, values: Any) -> None:
        """Refuse a kind that the numbers are not of."""
        if not self.kind:
            return
        numbers = torch.as_tensor(values).detach().double().flatten(1)
        shares = numbers.exp() if self.kind == "log-probabilities" else numbers
        sums = shares.sum(1)
        if bool((shares < 0).any()) or bool(((sums - 1).abs() > 1e-2).any()):
            raise ClasswiseError(
                f"output {self.kind}: the model's outputs are none, they add up to "
                f"{float(sums[0]):.3g}; leave it out if they are logits"
            )


def parts_of(answer: Any) -> dict[str, Any] | None:
    """An answer's parts by their names or numbers; None for a tensor or an array."""
    if isinstance(answer, Tensor | np.ndarray):
        return None
    if isinstance(answer, Mapping):
        return {str(name): part for name, part in answer.items()}
    names = getattr(answer, "_fields", None)  # a tuple with names
    if isinstance(answer, tuple | list):
        return {str(n): part for n, part in zip(names or range(len(answer)), answer, strict=True)}
    held = getattr(answer, "__dict__", {})
    found = {name: part for name, part in held.items() if isinstance(part, Tensor | np.ndarray)}
    return found or None


def _part(answer: Any, which: str | int) -> Any:
    if isinstance(answer, Mapping):
        return answer[which] if which in answer else answer[str(which)]
    if isinstance(which, int):
        return answer[which]
    if isinstance(answer, tuple | list) and not hasattr(answer, which):
        return answer[int(which)]
    return getattr(answer, which)


def _likely(answer: Any, parts: dict[str, Any], count: int, num_classes: int | None) -> str | int:
    """The part called logits, or the only one that has their shape."""
    if "logits" in parts:
        return "logits"
    fit = []
    for name, part in parts.items():
        shape = tuple(getattr(part, "shape", ()))
        if len(shape) > 2 and set(shape[2:]) == {1}:
            shape = shape[:2]
        if len(shape) == 2 and shape[0] == count and shape[1] == (num_classes or shape[1]):
            fit.append(name)
    if len(fit) != 1:
        raise ClasswiseError(_several(answer, parts, "nobody can tell which of it are the logits"))
    return int(fit[0]) if isinstance(answer, tuple | list) and fit[0].isdecimal() else fit[0]


def _several(answer: Any, parts: dict[str, Any], trouble: str) -> str:
    """What there is to choose from, and how."""
    shown = [
        f"{name} {tuple(part.shape) if hasattr(part, 'shape') else type(part).__name__}"
        for name, part in list(parts.items())[:6]
    ]
    more = f", and {len(parts) - 6} more" if len(parts) > 6 else ""
    first = next(iter(parts), "NAME")
    return (
        f"the model gives a {type(answer).__name__} of {cut('; '.join(shown), 300)}{more}, and "
        f"{trouble}; say which, such as --output {first} (in Python: output={first!r})"
    )
