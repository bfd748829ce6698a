"""How the tensors of a file differ from those that a model wants, in words that lead on."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from classwise.errors import defused
from classwise.spelling import few_names

_SHOWN = 4  # names of each kind in a message


@dataclass(frozen=True)
class Misfits:
    """What is missing, what is left over, and what has another shape."""

    missing: tuple[str, ...]
    left: tuple[str, ...]
    shapes: dict[str, str]  # by name, which shape is there and which is wanted

    @classmethod
    def of(cls, wanted: Mapping[str, Tensor], there: Mapping[str, Tensor]) -> Misfits:
        """Compare by name and shape."""
        both = sorted(wanted.keys() & there.keys())
        return cls(
            tuple(sorted(wanted.keys() - there.keys())),
            tuple(sorted(there.keys() - wanted.keys())),
            {
                name: f"{tuple(there[name].shape)}, not {tuple(wanted[name].shape)}"
                for name in both
                if wanted[name].shape != there[name].shape
            },
        )

    def __bool__(self) -> bool:
        return bool(self.missing or self.left or self.shapes)

    @property
    def words(self) -> str:
        """All three kinds, the first names of each."""
        shapes = [f"{name} is {shape}" for name, shape in self.shapes.items()]
        return "; ".join(
            f"{len(names)} {what}: {shown(names, _SHOWN)}"
            for what, names in (
                ("missing", self.missing),
                ("that belong to no part of it", self.left),
                ("of another shape", shapes),
            )
            if names
        )

    @property
    def pairs(self) -> dict[str, str]:
        """Names of the file that are perhaps names of the model, by part: `classifier`: `head`."""
        found: dict[str, str] = {}
        for name in self.missing:
            end = name.rpartition(".")[2]
            alike = [one for one in self.left if one.rpartition(".")[2] == end]
            near = difflib.get_close_matches(name, alike, n=1, cutoff=0)
            if near:
                found.setdefault(near[0].rpartition(".")[0] or near[0], name.rpartition(".")[0])
        # one part of the file cannot be two of the model: then the guess is none
        twice = [new for new in found.values() if list(found.values()).count(new) > 1]
        return {old: new for old, new in found.items() if new and new not in twice}


def shown(names: Sequence[str], most: int = 6) -> str:
    """A few names out of strangers' files: nothing in them may move the cursor of a terminal."""
    return few_names([defused(name) for name in names], most)
