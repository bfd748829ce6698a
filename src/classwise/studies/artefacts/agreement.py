"""Runs that differ in one axis: do they put the classes in the same order, and what follows?"""

from __future__ import annotations

from collections.abc import Sequence

from classwise.errors import unknown
from classwise.judging.agreement import RankAgreement
from classwise.judging.metrics import ConditionReport
from classwise.judging.universal import Agreement
from classwise.studies.artefact import Artefact, Cell, Figure, Series
from classwise.studies.cells import cell_over, notes_of, settings_of
from classwise.studies.counted import equal_rates_p_value
from classwise.studies.epochs import gaps
from classwise.studies.found import Found, FoundRun, Hole
from classwise.studies.orders import AgreementOptions, Compared
from classwise.studies.pairing import Predictions
from classwise.studies.readings import Read, read_measure

EVERY = "all of them"
NOTHING = Cell(words="–")
LEAST = 1e-4  # chances below are not told apart


def agreement(found: Found, options: AgreementOptions) -> Artefact:
    """How unequal the classes are at every value of an axis, how far their orders agree, and so."""
    found = found.only(options.where)
    values, rows, panels = found.values(options.axis), list[tuple[Cell, ...]](), list[Figure]()
    predictions = Predictions()
    if options.beside and options.beside not in values:
        raise unknown(f"{options.axis} to stand beside", options.beside, values)
    for setting in settings_of(found, but=(options.axis, *options.along)):
        for condition in options.conditions:
            compared = Compared.of(setting, condition, options, predictions)
            rows += _rows(compared, values)
            panels += _panels(compared)
    return Artefact(
        options.file_name,
        options.title,
        (
            *("runs", "condition", options.axis, "class std", "worst class"),
            *("chance if classes were equal", "lowest ρ with another"),
            *([f"ρ with {options.beside}"] if options.beside else []),
            *("ρ between seeds alone", "verdict"),
        ),
        tuple(rows),
        (
            *notes_of(found, options.conditions, [options.weights]),
            f"Spearman's ρ of the class accuracies; {options.level:.0%} intervals in the verdict "
            "are over images, drawn for all runs of the same images together, for others by "
            "themselves, which is wider. The same "
            f"order is ρ of {options.same_from:g} or more of every pair; the paper says “the same "
            "trend” and no number.",
            "Whether classes differ: χ² of right and wrong by class; in the verdict corrected for "
            "all values of the axis (Holm).",
            *([options.note] if options.note else []),
        ),
        Figure("heat", options.axis, options.axis, panels=tuple(panels), unit="")
        if panels
        else None,
    )


def _rows(compared: Compared, values: Sequence[str]) -> list[tuple[Cell, ...]]:
    """A row for every value of the axis, and one with the verdict."""
    options, condition, label = compared.options, compared.condition, compared.setting.label
    rows = []
    for value in values:
        runs = [run for run in compared.setting.runs if run.labels.get(options.axis) == value]
        if not runs:
            continue  # the study has no such run in this setting

        def read(run: FoundRun) -> ConditionReport:
            return run.report(condition, options.weights)

        def lowest_of(run: FoundRun) -> float:
            read(run)  # a run that is not there says so itself
            return compared.lowest(run.seed, run.labels[options.axis])

        def beside_one(run: FoundRun) -> Read:
            read(run)
            return compared.with_one(run.seed, run.labels[options.axis])

        itself = value == options.beside
        other = NOTHING if itself else cell_over(runs, beside_one, unit="")
        rows.append(
            (
                *(Cell(words=words) for words in (label, condition, value)),
                cell_over(runs, lambda run: read_measure(read(run), "spread")),
                cell_over(runs, lambda run: read_measure(read(run), "worst")),
                _chance(compared, value),
                cell_over(runs, lowest_of, unit=""),
                *([other] if options.beside else []),
                _between_seeds(compared, value),
                NOTHING,
            )
        )
    lowest = [
        rho for seed in compared.by_seed if (rho := compared.lowest_or_none(seed)) is not None
    ]
    pairs = Cell(tuple(lowest), unit="") if lowest else Cell(hole="no pair to compare")
    named = (Cell(words=words) for words in (label, condition, EVERY))
    last = (NOTHING,) * (2 if options.beside else 1)
    rows.append((*named, *(NOTHING,) * 3, pairs, *last, Cell(words=compared.verdict)))
    return rows


def _chance(compared: Compared, value: str) -> Cell:
    """The largest chance of all seeds that equal classes differ as much."""
    found = [equal_rates_p_value(by[value]) for by in compared.reports.values() if value in by]
    if not found:
        return Cell(hole="not audited")
    return Cell(words=f"{max(found):.2g}" if max(found) >= LEAST else f"below {LEAST:g}")


def _between_seeds(compared: Compared, value: str) -> Cell:
    """One number for all seeds."""
    try:
        return Cell(words=f"{compared.between_seeds(value):.2f}")
    except Hole as reason:
        return Cell(hole=str(reason))


def _panels(compared: Compared) -> list[Figure]:
    """ρ of all pairs, of the first seed that has them."""
    known = [one for one in compared.by_seed.values() if isinstance(one, Agreement)]
    if not known:
        return []
    ranks: RankAgreement = known[0].ranks
    table = ranks.measures["spearman"].value
    series = tuple(
        Series(name, ranks.runs, gaps(row)) for name, row in zip(ranks.runs, table, strict=True)
    )
    axis, title = compared.options.axis, f"{compared.setting.label}, {compared.condition}"
    return [Figure("heat", axis, axis, series, title=title, unit="")]
