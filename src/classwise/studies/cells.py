"""From found runs to cells: which belong together, what is read of each, what is said below."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from classwise.errors import ClasswiseError
from classwise.judging.audits import AuditedWeights
from classwise.report.summary import remarks as remarks_on
from classwise.spelling import few_names, spell_eps
from classwise.studies.artefact import PERCENT, Cell, Series
from classwise.studies.found import NOT_RUN, SEED, Found, FoundRun, Hole
from classwise.studies.readings import Read, report_of

FIRST_AXES = ("row", "recipe")  # what a run is called by
OTHER_SCALE = "not the paper's scale"
MOST_REMARKS = 6
MOST_NAMED = 3  # classes beside a number
NO_CLASS = "no class known yet"  # the one line of a table without any run
NO_SUCH_RUN = "the study has no such run"


@dataclass(frozen=True)
class Setting:
    """Runs that differ by their seed alone, and what they are called."""

    label: str
    runs: tuple[FoundRun, ...]


def settings_of(found: Found, *, but: Sequence[str] = ()) -> tuple[Setting, ...]:
    """The runs grouped by all labels but their seed and the axes `but`, in the order of the file.

    They are called by their row or recipe, and by every further axis that tells two of them apart.
    """
    groups: dict[tuple[tuple[str, str], ...], list[FoundRun]] = {}
    for run in found.runs:
        key = tuple((axis, value) for axis, value in run.setting if axis not in but)
        groups.setdefault(key, []).append(run)
    keys = [dict(key) for key in groups]
    axes = _telling_axes(keys)
    labels = [_called(key, axes) or found.study.title for key in keys]
    return tuple(
        Setting(label, tuple(runs)) for label, runs in zip(labels, groups.values(), strict=True)
    )


def _telling_axes(keys: Sequence[dict[str, str]]) -> list[str]:
    """The axes that are needed to tell settings apart; the row or recipe in any case."""
    known = list(dict.fromkeys(axis for key in keys for axis in key))
    chosen = [axis for axis in FIRST_AXES if axis in known][:1]
    ordered = [*(axis for axis in FIRST_AXES if axis in known), *known]
    for axis in dict.fromkeys(ordered):
        told = {tuple(key.get(one) for one in chosen) for key in keys}
        finer = {tuple(key.get(one) for one in [*chosen, axis]) for key in keys}
        if len(finer) > len(told):
            chosen.append(axis)
    return chosen


def _called(key: dict[str, str], axes: Sequence[str]) -> str:
    words = [
        key[axis] if axis in (*FIRST_AXES, "data", "model") else f"{axis} {key[axis]}"
        for axis in axes
        if axis in key
    ]
    return ", ".join(words)


def cell_over(
    runs: Sequence[FoundRun], read: Callable[[FoundRun], float | Read], unit: str = PERCENT
) -> Cell:
    """One cell over the seeds of a setting; seeds without a number are said in its hole.

    The class named most often stands beside the number; an interval, where there is one seed.
    """
    settings = {run.setting for run in runs}
    if len(settings) > 1:
        raise ClasswiseError(
            f"{len(settings)} settings in one cell, which only seeds may share; these runs differ "
            f"in {few_names(_differing(runs), 5)}: name one value of it under `where`"
        )
    reads, holes = [], []
    for run in runs:
        try:
            found = read(run)
        except Hole as reason:
            holes.append(str(reason))
        else:
            reads.append(found if isinstance(found, Read) else Read(float(found)))
    return Cell(
        rates=tuple(one.rate for one in reads),
        words=_most_often(reads),
        interval=reads[0].interval if len(reads) == 1 else None,
        hole=_why(holes, len(runs)) or ("" if reads else NO_SUCH_RUN),
        unit=unit,
    )


def band(cells: Sequence[Cell]) -> tuple[tuple[float | None, ...], tuple[float | None, ...]]:
    """Mean minus and plus the deviation over seeds; a gap where there is no deviation."""
    overs = [cell.over if len(cell.rates) > 1 else None for cell in cells]
    low = tuple(None if over is None else over.mean - over.deviation for over in overs)
    return low, tuple(None if over is None else over.mean + over.deviation for over in overs)


def line_of(name: str, x: tuple[float, ...] | tuple[str, ...], cells: Sequence[Cell]) -> Series:
    """Means of cells as a line, bars or points, with the band of their seeds."""
    low, high = band(cells)
    known = any(end is not None for end in low)
    y = tuple(cell.mean for cell in cells)
    return Series(name, x, y, low if known else None, high if known else None)


def _differing(runs: Sequence[FoundRun]) -> list[str]:
    axes = dict.fromkeys(axis for run in runs for axis in run.labels if axis != SEED)
    return [axis for axis in axes if len({run.labels.get(axis) for run in runs}) > 1]


def _most_often(reads: Sequence[Read]) -> str:
    """The class that is named most often, and how often where there are several seeds.

    Where many are named equally often, as all classes at 0 %, none of them is singled out.
    """
    count = Counter(name for one in reads for name in one.classes)
    if not count:
        return ""
    times = max(count.values())
    top = [name for name, often in count.items() if often == times]
    words = ", ".join(top) if len(top) <= MOST_NAMED else f"{len(top)} classes"
    return words if len(reads) == 1 else f"{words} {times}/{len(reads)}"


def _why(holes: Sequence[str], runs: int) -> str:
    """Why numbers are missing; how many of the seeds, where it is not all of them."""
    if not holes:
        return ""
    reasons = few_names(list(dict.fromkeys(holes)))
    return reasons if len(holes) == runs else f"{len(holes)} of {runs} seeds missing: {reasons}"


def class_names(found: Found, condition: str, weights: str) -> tuple[str, ...]:
    """The classes of all runs, which must be the same; without a run, one name that says so."""
    seen: dict[tuple[str, ...], None] = {}
    for run in found.runs:
        with suppress(Hole):
            seen[report_of(run, condition, weights).class_names] = None
    if len(seen) > 1:
        raise ClasswiseError(
            f"the runs have {len(seen)} different lists of classes, which cannot stand side by "
            "side; choose one set of data under `where`"
        )
    return next(iter(seen), (NO_CLASS,))


def condition_words(found: Found, condition: str) -> str:
    """A condition as a heading names it, and what stands for it at this scale."""
    other = found.stand_in(condition)
    return condition if other == condition else f"{condition} (here {other})"


def notes_of(
    found: Found, conditions: Iterable[str] = (), weights: Sequence[str] = ("last",)
) -> tuple[str, ...]:
    """What stands under every artefact: scale, seeds, attacks with radius, samples, holes."""
    lines = [scale_note(found), _seed_note(found)]
    for condition in dict.fromkeys(conditions):
        lines += _condition_notes(found, condition, weights)
    lines.append(hole_note(found))
    said = remarks_on([audit for run in found.runs for audit in _audits(run, weights)])
    lines += said[:MOST_REMARKS]
    if len(said) > MOST_REMARKS:
        lines.append(f"{len(said) - MOST_REMARKS} more remarks are in the reports of the runs.")
    return tuple(line for line in lines if line)


def _audits(run: FoundRun, weights: Sequence[str]) -> list[AuditedWeights]:
    found = []
    for one in weights:
        with suppress(Hole):
            found.append(run.audit(one))
    return found


def scale_note(found: Found) -> str:
    """At which scale the numbers were made.

    What is not the paper's scale says so, beside every number.
    """
    words = f": {found.scale_words}" if found.scale_words else ""
    said = found.scale == "paper" or OTHER_SCALE in words
    return f"Scale {found.scale}{words}{'' if said else f'; {OTHER_SCALE}'}."


def _seed_note(found: Found) -> str:
    counts = sorted({len(one.runs) for one in settings_of(found)})
    if not counts:
        return "No run belongs to this."
    if counts == [1]:
        return "One seed."
    many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Mean ± sample deviation over {many} seeds."


def _condition_notes(found: Found, condition: str, weights: Sequence[str]) -> list[str]:
    """Radius, norm, verdict and samples of a condition over all runs."""
    threats: dict[str, dict[str, None]] = {}
    for run in found.runs:
        for one in weights:
            try:
                words, radius = _threat(run, condition, one)
            except Hole:
                continue
            threats.setdefault(words, {})[radius] = None
    return [words.format(few_names(list(radii), 6)) for words, radii in threats.items()]


def _threat(run: FoundRun, condition: str, weights: str) -> tuple[str, str]:
    """What is said of a condition, with a place for its radius, and the radius."""
    report = run.report(condition, weights)
    about = run.audit(weights).report.about
    sizes = report.counts.sizes
    low, high = int(sizes.min()), int(sizes.max())
    each = f"{low}" if low == high else f"{low} to {high}"
    name = report.condition.replace("{", "{{").replace("}", "}}")
    if condition in run.stand_ins:
        name += f", in place of {condition}"
    images = f"{int(sizes.sum())} images, {each} per class."
    if report.kind in ("clean", "shift"):
        return f"{name}: {images}", ""
    norm, verdict = (str(getattr(report, f) or about.get(f, "")) for f in ("norm", "verdict"))
    radius = spell_eps(report.eps) if report.eps is not None else str(about.get("eps", "?"))
    return f"{name} ({norm}, eps {{}}, verdict {verdict}): {images}", radius


def hole_note(found: Found) -> str:
    """How many runs have no record, and why."""
    reasons = Counter(run.why or NOT_RUN for run in found.runs if run.run is None)
    if not reasons:
        return ""
    words = few_names([f"{why} ({many})" for why, many in reasons.most_common()])
    return f"{reasons.total()} of {len(found.runs)} runs are missing: {words}."
