"""Does how well, or how steadily, a class trains say how robust it will be?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field

from classwise.judging.metrics import ConditionReport
from classwise.statistics.intervals import Rates
from classwise.statistics.ranks import random_agreement, spearman
from classwise.statistics.redrawn import interval_of, redraw
from classwise.studies.artefact import Artefact, ArtefactOptions, Cell, Figure, Series
from classwise.studies.cells import Setting, cell_over, condition_words, notes_of, settings_of
from classwise.studies.epochs import OverEpochs, gaps
from classwise.studies.found import Found, FoundRun, Hole
from classwise.studies.looks import Look, LookOption, over_epochs, split_notes
from classwise.studies.readings import ConditionName

LEVEL: Final = "level"
STEADINESS: Final = "steadiness"
WORDS = {
    LEVEL: "accuracy of the class in that epoch",
    STEADINESS: "minus its mean |change| between looks until then",
}
FEWEST = 3  # classes that have an order


class ConvergenceOptions(ArtefactOptions):
    """Rank correlation over classes, epoch by epoch, with what was audited at the end.

    Ahn's claim in the abstract and in sections 3.3, 4.2 and 6: clean training convergence, and its
    stability, predict how robust a class is. Predictors beside `train:clean` show whether another
    would do as well, such as `train:robust`.
    """

    kind: Literal["convergence"]
    predictors: tuple[LookOption, ...] = Field((Look("train", "clean"),), min_length=1)
    measures: tuple[Literal["level", "steadiness"], ...] = (LEVEL, STEADINESS)
    condition: ConditionName = "pgd-20"
    weights: str = "last"
    at: tuple[Annotated[float, Field(gt=0, le=1)], ...] = (0.1, 0.25, 0.5, 0.75, 1.0)
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95  # of the intervals
    draws: Annotated[int, Field(ge=100, le=10_000)] = 1000


@dataclass(frozen=True)
class Predicted:
    """Spearman's ρ of one run in every epoch that has one, with its interval over test images."""

    epochs: tuple[int, ...]
    rho: Rates
    low: Rates
    high: Rates
    length: int  # epochs of the whole run
    classes: int

    def place(self, share: float) -> int:
        """The last look until this share of the run; the first one where that is later."""
        until = max(math.ceil(round(share * self.length, 9)), self.epochs[0])
        return max(place for place, epoch in enumerate(self.epochs) if epoch <= until)


def convergence(found: Found, options: ConvergenceOptions) -> Artefact:
    """Correlate the classes' training with their robustness, and draw that over the epochs."""
    found = found.only(options.where)
    rows, panels, classes = [], [], set[int]()
    for look in options.predictors:
        for measure in options.measures:
            series = []
            for setting in settings_of(found):
                made = _of_setting(setting, look, measure, options)
                known = [one for one in made.values() if isinstance(one, Predicted)]
                classes |= {one.classes for one in known}
                cells = (_cell(setting, made, share) for share in options.at)
                named = (setting.label, str(look), measure)
                rows.append((*(Cell(words=words) for words in named), *cells))
                series += [_series(setting.label, known)] if known else []
            title = f"{look}, {measure}"
            panels.append(Figure("lines", "epoch", "ρ", tuple(series), title=title, unit=""))
    chance = {count: random_agreement(count) for count in sorted(classes)}
    panels = [replace(panel, level=min(chance.values(), default=None)) for panel in panels]
    return Artefact(
        options.file_name,
        options.title,
        ("run", "predictor", "of it", *(f"at {share:.0%} of the run" for share in options.at)),
        tuple(rows),
        (
            *notes_of(found, [options.condition], [options.weights]),
            *_notes(found, options, chance),
        ),
        Figure("lines", "epoch", "ρ", panels=tuple(panels), unit=""),
    )


def predicted(
    seen: OverEpochs, report: ConditionReport, measure: str, level: float, draws: int
) -> Predicted:
    """ρ over classes of a training figure and of the accuracy in an audit, in every epoch.

    The training images are all there are; those of the audit are drawn anew within each class.
    """
    if seen.class_names != report.class_names:
        raise Hole("the history and the audit have different classes")
    epochs, values = seen.epochs, seen.rates
    if measure == STEADINESS:
        epochs, steps = epochs[1:], np.arange(1, len(values))[:, None]
        values = -np.abs(np.diff(values, axis=0)).cumsum(0) / steps
    names, hits, sizes = report.tally[:3]
    there = (np.asarray(sizes) > 0) & ~np.isnan(values).any(0)
    if not len(epochs) or there.sum() < FEWEST:
        raise Hole(
            f"{len(epochs)} epochs and {int(there.sum())} of {len(names)} classes to compare"
        )
    labels = np.repeat(np.arange(len(names)), sizes)
    within = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    right = within < np.asarray(hits)[labels]
    drawn = np.concatenate(list(redraw(labels, right[None], len(names), draws, seed=0)))[
        :, 0, there
    ]
    final = (np.asarray(hits)[there] / np.asarray(sizes)[there])[None]
    every = spearman(np.concatenate([values[:, there], final, drawn]))
    known, count = every[: len(epochs)], len(epochs)
    span = interval_of(known[:, count], known[:, count + 1 :].T, level, -1.0, 1.0)
    return Predicted(epochs, span.value, span.low, span.high, seen.length, int(there.sum()))


def _of_setting(
    setting: Setting, look: Look, measure: str, options: ConvergenceOptions
) -> dict[str, Predicted | Hole]:
    """By seed."""
    found: dict[str, Predicted | Hole] = {}
    for run in setting.runs:
        try:
            report = run.report(options.condition, options.weights)
            seen = over_epochs(run, look)
            found[run.seed] = predicted(seen, report, measure, options.level, options.draws)
        except Hole as reason:
            found[run.seed] = reason
    return found


def _cell(setting: Setting, made: dict[str, Predicted | Hole], share: float) -> Cell:
    """ρ of every seed, and an interval that holds those of all seeds."""
    ends: list[tuple[float, float]] = []

    def read(run: FoundRun) -> float:
        one = made[run.seed]
        if isinstance(one, Hole):
            raise one
        place = one.place(share)
        if math.isnan(one.rho[place]):
            raise Hole("all classes are equal, which is no order")
        ends.append((float(one.low[place]), float(one.high[place])))
        return float(one.rho[place])

    cell = cell_over(setting.runs, read, unit="")
    if not ends:
        return cell
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    words = f"{low:.2f} to {high:.2f}" if len(ends) > 1 else ""  # beside a deviation over seeds
    return replace(cell, interval=(low, high), words=words)


def _series(name: str, known: Sequence[Predicted]) -> Series:
    """The mean over seeds, in the epochs that all of them have."""
    epochs = sorted(set.intersection(*(set(one.epochs) for one in known)))
    at = [[one.epochs.index(epoch) for epoch in epochs] for one in known]
    pairs = list(zip(known, at, strict=True))
    return Series(
        name,
        tuple(float(epoch) for epoch in epochs),
        gaps(np.mean([one.rho[places] for one, places in pairs], axis=0)),
        gaps(np.min([one.low[places] for one, places in pairs], axis=0)),
        gaps(np.max([one.high[places] for one, places in pairs], axis=0)),
    )


def _notes(found: Found, options: ConvergenceOptions, chance: dict[int, float]) -> tuple[str, ...]:
    named = condition_words(found, options.condition)
    said = [
        f"Spearman's ρ over classes with the accuracy under {named} ({options.weights} weights); "
        f"intervals: {options.level:.0%}, test images drawn anew within each class, over all seeds "
        "from the lowest end to the highest. They say nothing of other trainings or classes.",
        *(f"{name}: {WORDS[name]}." for name in options.measures),
        *(
            f"Two unrelated orders of {count} classes stay below ρ = {rho:.2f} in 95 of 100 cases."
            for count, rho in chance.items()
        ),
        *split_notes(options.predictors),
    ]
    return (*said, options.note) if options.note else tuple(said)
