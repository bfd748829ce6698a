"""Whether weak classes are weak in every run: orders, confusions, similarity, epochs, a verdict.

The decision rule is that of Benz et al. (2021): if runs that differ in architecture or optimisation
have the same robust and vulnerable classes, these factors have little to do with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from classwise.errors import ClasswiseError
from classwise.judging.agreement import (
    FEWEST_IMAGES,
    Pair,
    RankAgreement,
    agree_samples,
    check_runs,
    labels_alike,
)
from classwise.judging.asymmetry import Asymmetry
from classwise.judging.samples import AuditedSamples
from classwise.judging.similarity import Similarity
from classwise.judging.vulnerable import WorstOverEpochs, worst_over_epochs
from classwise.record.card import read_card
from classwise.record.means import read_means
from classwise.record.remarks import said_of
from classwise.spelling import one_line

SAME_FROM = 0.8  # of Spearman's ρ; the paper says "the same trend" and no number
_OPTIONS = "options of the recipe"
_NO_CAUSE = ("watch", "watch_every", "watch_share", "keep_every")  # settings that decide no weight


class Verdict(NamedTuple):
    """Whether the order of the classes is the same; None where that cannot be decided."""

    same: bool | None
    words: str


@dataclass(frozen=True)
class RunDetails:
    """What is known of one run under the condition, beside its order of the classes."""

    name: str
    weights: str
    asymmetry: Asymmetry
    similarity: Similarity | None  # None: `classwise similarity` was not run
    over_epochs: WorstOverEpochs | None  # None: no history
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Agreement:
    """What several runs have in common under one condition."""

    ranks: RankAgreement
    runs: tuple[RunDetails, ...]
    differs: Mapping[str, tuple[str, ...]]  # setting -> its value in each run, where they differ
    same_from: float = SAME_FROM

    @property
    def condition(self) -> str:
        """The condition that the runs were audited under."""
        return self.ranks.condition

    @property
    def verdict(self) -> Verdict:
        """By the lowest pair: the same order, another one, or undecided.

        The same if every pair's interval lies above `same_from`; another if the interval of some
        pair, wide enough for all pairs at once, lies below it. Very few images decide nothing.
        """
        pairs = self.ranks.pairs
        lowest, sure = pairs[0], self.ranks.sure
        if any(np.isnan(pair.value) for pair in pairs):
            return Verdict(None, "Undecided: a run has all classes equal, which is no order.")
        if self.ranks.fewest < FEWEST_IMAGES:
            return Verdict(
                None,
                f"Undecided: {self._named(lowest)}, but the smallest class has "
                f"{self.ranks.fewest} images; {FEWEST_IMAGES} of each are the least.",
            )
        said = f"{self._named(lowest)}, with chance alone below {self.ranks.by_chance:.2f}"
        if all(pair.low >= self.same_from for pair in pairs):
            return Verdict(
                True,
                f"The same order of the classes in all {len(self.runs)} runs (lowest pair: {said})."
                f" What differs between them ({self._causes()}) has little to do with which "
                "classes are weak.",
            )
        apart = [pair for pair in pairs if sure.high[pair.first, pair.second] < self.same_from]
        if apart:
            return Verdict(
                False,
                f"Not the same order of the classes: {self._named(apart[0])}. What differs between "
                f"these two ({self._causes(apart[0])}) may be one cause of which classes are weak.",
            )
        return Verdict(
            None,
            f"Undecided: the lowest pair is {said}. Not every pair is surely above "
            f"{self.same_from:g}, and none, all pairs considered, surely below. More images per "
            "class would settle it.",
        )

    def _named(self, pair: Pair) -> str:
        first, second = self.ranks.runs[pair.first], self.ranks.runs[pair.second]
        return (
            f"{first} and {second}, ρ = {pair.value:.2f}, {100 * self.ranks.level:g} % interval "
            f"{pair.low:.2f} to {pair.high:.2f}"
        )

    def _causes(self, pair: Pair | None = None) -> str:
        """Settings in which all runs, or two of them, differ."""
        names = [
            name
            for name, values in self.differs.items()
            if pair is None or values[pair.first] != values[pair.second]
        ]
        return ", ".join(names) or "nothing that is on record"


def agreement(
    paths: Sequence[Path],
    runs: Sequence[AuditedSamples],
    condition: str,
    *,
    same_from: float = SAME_FROM,
    **options: Any,
) -> Agreement:
    """Put together what is known of runs under one condition; no model is touched."""
    if not -1 < same_from <= 1:
        raise ClasswiseError(f"same_from is {same_from}; give a correlation, such as 0.8")
    ranks = agree_samples(runs, condition, **options)
    details = [
        _details(path, run, label, name, ranks.level)
        for path, run, label, name in zip(
            paths, runs, labels_alike(runs, condition), ranks.runs, strict=True
        )
    ]
    return Agreement(ranks, tuple(details), differing(paths, runs), same_from)


def shared_conditions(runs: Sequence[AuditedSamples]) -> list[str]:
    """Conditions that every run was audited under, in the words of the first."""
    check_runs(runs)
    others = [{stamp.attack_key for stamp in run.stamps.values()} for run in runs[1:]]
    first = runs[0].stamps
    found = [name for name in first if all(first[name].attack_key in keys for keys in others)]
    if not found:
        names = "; ".join(f"{run.name}: {', '.join(run.conditions)}" for run in runs)
        raise ClasswiseError(
            f"the runs have no condition in common (attack, eps, norm, seed and verdict alike): "
            f"{names}; audit all of them with the same --attacks and --eps"
        )
    return found


def differing(paths: Sequence[Path], runs: Sequence[AuditedSamples]) -> dict[str, tuple[str, ...]]:
    """The settings in which runs differ, as far as their run.json says them."""
    facts = [_facts(path, run) for path, run in zip(paths, runs, strict=True)]
    names = dict.fromkeys(name for one in facts for name in one)
    table = {name: tuple(one.get(name, "not said") for one in facts) for name in names}
    found = {name: values for name, values in table.items() if len(set(values)) > 1}
    if "recipe" in found:  # other methods have other options
        found.pop(_OPTIONS, None)
    return found


def _facts(path: Path, run: AuditedSamples) -> dict[str, str]:
    card = read_card(path)
    config = {n: v for n, v in card.get("config", {}).items() if n not in _NO_CAUSE}
    said = {"recipe": card.get("recipe_name", ""), _OPTIONS: card.get("recipe", {})}
    said |= {"weights": run.weights, **config}
    return {
        name: one_line(value if isinstance(value, str) else json.dumps(value), 200)
        for name, value in said.items()
    }


def _details(path: Path, run: AuditedSamples, label: str, name: str, level: float) -> RunDetails:
    stamp = run.stamps[label]
    confused = Asymmetry.of(run.conditions[label], run.class_names, level)
    means = read_means(path, stamp.model_hash, stamp.data_hash)
    return RunDetails(
        name,
        run.weights,
        confused,
        None if means is None else Similarity.of(means, confused),
        worst_over_epochs(path, label.partition(" ")[0], run.class_names),
        tuple(said_of(run.remarks)),
    )
