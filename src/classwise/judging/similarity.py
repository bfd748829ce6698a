"""Classes that a model sees as alike: are they confused with each other, and weak?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from classwise.errors import ClasswiseError
from classwise.judging.asymmetry import Asymmetry
from classwise.record.means import ClassMeans
from classwise.statistics.intervals import Rates
from classwise.statistics.permuted import Together, classes_together, pairs_together


@dataclass(frozen=True)
class Similarity:
    """Cosines of class-mean logits, and what goes together with them under one condition."""

    class_names: tuple[str, ...]  # those that have images here and there
    cosines: Rates
    with_confusion: Together  # over pairs of classes
    with_accuracy: Together  # over classes: mean cosine with the others, and accuracy

    @classmethod
    def of(cls, means: ClassMeans, confused: Asymmetry) -> Similarity:
        """Put the similarity of a model's classes beside its verdicts under a condition."""
        if means.class_names != confused.class_names:
            raise ClasswiseError("class means and verdicts are of different classes")
        sizes = confused.confusion.sum(1)
        cosines = means.cosines
        there = np.flatnonzero((sizes > 0) & ~np.isnan(np.diagonal(cosines)))
        if len(there) < 3:
            raise ClasswiseError("similarity needs at least three classes with images")
        inside = np.ix_(there, there)
        found, accuracy = cosines[inside], (np.diagonal(confused.confusion) / np.maximum(sizes, 1))
        others = (found.sum(1) - np.diagonal(found)) / (len(there) - 1)
        return cls(
            tuple(confused.class_names[k] for k in there),
            found,
            pairs_together(found, confused.mutual[inside]),
            classes_together(others, accuracy[there]),
        )

    @property
    def closest(self) -> list[tuple[str, str, float]]:
        """All pairs of classes, the most similar first."""
        first, second = np.triu_indices(len(self.class_names), 1)
        cosines = self.cosines[first, second]
        return [
            (self.class_names[first[n]], self.class_names[second[n]], float(cosines[n]))
            for n in np.argsort(-cosines, kind="stable")
        ]

    @property
    def words(self) -> str:
        """One sentence."""
        one, other, cosine = self.closest[0]
        return (
            f"most alike {one} and {other} (cosine {cosine:.2f}); similarity goes with confusion "
            f"{_said(self.with_confusion)}, with class accuracy {_said(self.with_accuracy)}"
        )


def _said(found: Together) -> str:
    return f"ρ = {found.rho:+.2f} (p {found.p_value:.2g})"
