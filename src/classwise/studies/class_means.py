"""The class means that `classwise similarity` left in a run or in its record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from classwise.record.means import ClassMeans, read_means
from classwise.sealed import Damaged
from classwise.studies.found import FoundRun


@dataclass(frozen=True)
class FoundRunWithMeans(FoundRun):
    """A run of a study beside the mean logits of its classes."""

    means: tuple[ClassMeans, ...] = ()


def means_in(folder: Path) -> tuple[ClassMeans, ...]:
    """All of a folder; a damaged file is as good as none, and what needs it is a hole."""
    found = []
    for path in sorted((folder / "similarity").glob("*.safetensors")):
        model, _, data = path.stem.partition("-")
        try:
            means = read_means(folder, model, data)
        except Damaged:
            continue
        if means is not None:
            found.append(means)
    return tuple(found)
