"""Methods that train on clean and attacked images together beside those that do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import comb
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field
from scipy import stats

from classwise.methods.lee2020_avmixup import VertexMix
from classwise.studies.artefact import POINTS, Artefact, ArtefactOptions, Cell, Figure, Series
from classwise.studies.cells import cell_over, condition_words, notes_of, settings_of
from classwise.studies.found import Found, FoundRun, Hole
from classwise.studies.readings import ConditionName, Measure, read_run
from classwise.studies.trained_with import slots_of

BOTH, ATTACKED, CLEAN = "clean and attacked", "attacked alone", "clean alone"
MOST_SPLITS = 20_000


class BothViewsOptions(ArtefactOptions):
    """The two groups of methods under every measure, and their difference over methods.

    Ahn, section 4.1: methods that train on clean and attacked images, those on TRADES and
    AVmixup, have a smaller class deviation and a better worst class. Methods without an attack are
    in neither group.
    """

    kind: Literal["both-views"]
    measures: tuple[Measure, ...] = Field(("spread", "worst"), min_length=1)
    conditions: tuple[ConditionName, ...] = Field(("clean", "pgd-20"), min_length=1)
    weights: str = "last"
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95


class Difference(NamedTuple):
    """Mean of one group less that of another; what cannot be said is nan."""

    value: float
    low: float
    high: float
    p_value: float


def trains_on(run: FoundRun) -> str:
    """Which images the outer step of a run is taken on."""
    slots = slots_of(run)
    if slots.inner is None:
        return CLEAN
    views = slots.objective.views if slots.objective is not None else ()
    mixed = isinstance(slots.mix, VertexMix)  # between the image and beyond the attacked one
    return BOTH if "clean" in views or mixed else ATTACKED


def both_views(found: Found, options: BothViewsOptions) -> Artefact:
    """Put both groups side by side under every condition and measure."""
    found = found.only(options.where)
    groups, unknown = _groups(found)
    rows, panels, missing = [], [], list[str]()
    for condition in options.conditions:
        for measure in options.measures:
            means = {
                group: _means(members, measure, condition, options.weights)
                for group, members in groups.items()
            }
            missing += [
                name for group, by in groups.items() for name in by if name not in means[group]
            ]
            named = condition_words(found, condition)
            rows.append((Cell(words=named), Cell(words=measure), *_cells(means, options.level)))
            series = tuple(
                Series(group, tuple(by), tuple(by.values())) for group, by in means.items() if by
            )
            panels.append(Figure("points", "method", measure, series, title=f"{measure}, {named}"))
    return Artefact(
        options.file_name,
        options.title,
        ("condition", "measure", BOTH, ATTACKED, "difference", "p over methods"),
        tuple(rows),
        (
            *notes_of(found, options.conditions, [options.weights]),
            *(f"{group}: {', '.join(by) or 'no method'}." for group, by in groups.items()),
            *unknown,
            *(
                f"{name} has no number somewhere, and is left out there."
                for name in dict.fromkeys(missing)
            ),
            f"A method is one number, its mean over seeds; the difference has Welch's "
            f"{options.level:.0%} interval over methods, and p is the share of all ways to divide "
            "them that differ as much. Methods share parts and test images, so that they are not "
            "independent, and the two groups differ in more than this.",
            *([options.note] if options.note else []),
        ),
        Figure("points", "method", "accuracy", panels=tuple(panels)),
    )


def _groups(found: Found) -> tuple[dict[str, dict[str, tuple[FoundRun, ...]]], list[str]]:
    """Methods by what they train on, and what is said of those that nobody knows."""
    groups: dict[str, dict[str, tuple[FoundRun, ...]]] = {BOTH: {}, ATTACKED: {}}
    notes = []
    for setting in settings_of(found):
        kinds = set()
        why = ""
        for run in setting.runs:
            try:
                kinds.add(trains_on(run))
            except Hole as reason:
                why = str(reason)
        if not kinds:
            notes.append(f"{setting.label} is in no group: {why}.")
        elif CLEAN in kinds:
            notes.append(f"{setting.label} is in no group: it trains without an attack.")
        else:
            groups[kinds.pop()][setting.label] = setting.runs
    return groups, notes


def _means(
    members: Mapping[str, tuple[FoundRun, ...]], measure: str, condition: str, weights: str
) -> dict[str, float]:
    """The mean over seeds of every method that has one."""
    cells = {
        label: cell_over(runs, lambda run: read_run(run, measure, condition, weights))
        for label, runs in members.items()
    }
    return {label: cell.mean for label, cell in cells.items() if cell.mean is not None}


def _cells(means: Mapping[str, Mapping[str, float]], level: float) -> tuple[Cell, ...]:
    both, attacked = (list(means[group].values()) for group in (BOTH, ATTACKED))
    cells = [
        Cell((float(np.mean(side)),), words=f"{len(side)} methods")
        if side
        else Cell(hole="no method of this group has a number")
        for side in (both, attacked)
    ]
    if not (both and attacked):
        return (*cells, *(Cell(hole="one group has no method"),) * 2)
    found = difference(both, attacked, level)
    span = "two methods of each group are the least for an interval"
    if not np.isnan(found.low):
        span = f"{100 * found.low:+.1f} to {100 * found.high:+.1f} over methods"
    p_value = (
        Cell(hole="too many ways to divide the methods")
        if np.isnan(found.p_value)
        else Cell((found.p_value,), unit="")
    )
    return (*cells, Cell((found.value,), words=span, unit=POINTS), p_value)


def difference(one: Sequence[float], other: Sequence[float], level: float = 0.95) -> Difference:
    """mean(one) − mean(other), Welch's interval, and an exact permutation test of either sign.

    ± t(ν)·√(s²/n + s′²/n′), ν = (s²/n + s′²/n′)²/((s²/n)²/(n − 1) + (s′²/n′)²/(n′ − 1))

    >>> difference([1.0, 2.0], [4.0, 5.0]).p_value
    0.3333333333333333
    """
    first, second = np.asarray(one, np.float64), np.asarray(other, np.float64)
    value, low, high = float(first.mean() - second.mean()), np.nan, np.nan
    if min(len(first), len(second)) > 1:
        parts = first.var(ddof=1) / len(first), second.var(ddof=1) / len(second)
        error = np.sqrt(sum(parts))
        weak = parts[0] ** 2 / (len(first) - 1) + parts[1] ** 2 / (len(second) - 1)
        half = stats.t.ppf((1 + level) / 2, sum(parts) ** 2 / weak) * error if weak else 0.0
        low, high = value - float(half), value + float(half)
    every, count = np.concatenate([first, second]), len(first)
    if comb(len(every), count) > MOST_SPLITS:
        return Difference(value, low, high, np.nan)
    total, ways = every.sum(), []
    for chosen in combinations(range(len(every)), count):
        part = every[list(chosen)].sum()
        ways.append(part / count - (total - part) / len(second))
    p_value = float((np.abs(ways) >= abs(value) - 1e-12).mean())
    return Difference(value, low, high, p_value)
