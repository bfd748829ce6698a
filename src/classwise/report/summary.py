"""One row per weights and attack: average, worst, best, spread and tail, clean and robust."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from classwise.classes.counts import TAIL_FROM
from classwise.errors import ClasswiseError
from classwise.judging.audits import AuditedWeights
from classwise.judging.metrics import ConditionReport
from classwise.judging.showing import IN_PART, worst_words
from classwise.methods import METHODS
from classwise.recipe import compose
from classwise.spelling import average_and_keep, few_names, spell_eps

TAIL_SHARE = 0.1
NO_SAMPLES = "no samples"
MISSING = "–"
SIDES = ("clean", "robust")
# The papers' groups of columns, each with a clean and a robust one.
MEASURES = {
    "average": "Average",
    "worst": "Worst class",
    "tail": "Worst 10 % of classes",
    "best": "Best class",
    "spread": "Class std",
}


@dataclass(frozen=True)
class SummaryRow:
    """One row of the papers' tables."""

    label: str
    run: str
    recipe: str
    weights: str
    split: str
    attack: str  # the condition called robust; empty where only clean was audited
    eps: str
    norm: str
    verdict: str
    clean: ConditionReport | None
    robust: ConditionReport | None

    def side(self, side: str) -> ConditionReport | None:
        """What was found on one of the SIDES."""
        return self.clean if side == "clean" else self.robust


def summary_rows(audits: Sequence[AuditedWeights]) -> list[SummaryRow]:
    """Lay out audits as the papers do, one row per weights; several attacks give several rows."""
    rows = []
    runs = list(dict.fromkeys(audit.run for audit in audits))
    for audit in sorted(audits, key=lambda a: (runs.index(a.run), a.split, _weights_order(a))):
        kinds = {name: audit.report[name].kind for name in audit.report}
        clean = next((name for name, kind in kinds.items() if kind == "clean"), None)
        attacks = [name for name, kind in kinds.items() if kind != "clean"]
        about = audit.report.about
        for attack in attacks or [""]:
            threatened = attack and kinds[attack] != "shift"  # a shift has no radius or verdict
            row = SummaryRow(
                label=weights_label(audit, audits),
                run=audit.run,
                recipe=audit.recipe,
                weights=audit.weights,
                split=audit.split,
                attack=attack,
                eps=_eps_label(audit.report[attack].eps, about) if threatened else "",
                norm=_fact("norm", audit.report[attack], about) if threatened else "",
                verdict=_fact("verdict", audit.report[attack], about) if threatened else "",
                clean=audit.report[clean] if clean else None,
                robust=audit.report[attack] if attack else None,
            )
            rows.append(row)
    return _told_apart(rows)


def measured(report: ConditionReport, measure: str) -> tuple[float | None, tuple[str, ...]]:
    """One of the MEASURES as a rate in [0, 1], and the classes to name beside it.

    Images that were chosen by what was seen of others have no average to speak of.
    """
    if report.unfinished:
        return None, ()
    if measure == "average":
        return report.overall, ()  # share of all samples, not the mean over classes
    if measure == "worst":
        return report.worst, report.names_at(report.worst)
    if measure == "best":
        return report.best, report.names_at(report.best)
    if measure == "spread":
        return report.spread, ()
    return report.tail(TAIL_SHARE) if len(report.class_names) >= TAIL_FROM else (None, ())


def classes_without_samples(report: ConditionReport) -> list[str]:
    """Names of the classes that nothing can be said about."""
    present = report.counts.present.tolist()
    return [name for name, there in zip(report.class_names, present, strict=True) if not there]


def shown(rows: Sequence[SummaryRow]) -> dict[str, list[str]]:
    """The measures that have something to show, each with its sides."""
    columns = {
        measure: [
            side for side in SIDES if any(cell(row, measure, side)[0] != MISSING for row in rows)
        ]
        for measure in MEASURES
    }
    return {measure: sides for measure, sides in columns.items() if sides}


def cell(row: SummaryRow, measure: str, side: str) -> tuple[str, tuple[str, ...]]:
    """One number in per cent and the classes to name beside it."""
    report = row.side(side)
    value, names = measured(report, measure) if report else (None, ())
    return (MISSING, ()) if value is None else (percent(value), names)


def beside(row: SummaryRow, measure: str, side: str) -> str:
    """The classes to name beside a number; the worst one with the interval of the truly worst."""
    span = worst_span(row, measure, side)
    return few_names(cell(row, measure, side)[1]) + (f"; {span}" if span else "")


def worst_span(row: SummaryRow, measure: str, side: str) -> str:
    """The interval of the truly worst class in per cent; nothing beside other measures."""
    report = row.side(side)
    there = report is not None and measure == "worst" and not report.unfinished
    return worst_words(report) if report is not None and there else ""


def attack_words(row: SummaryRow) -> str:
    """An attack with its own norm, radius and verdict."""
    threat = f" ({row.norm}, eps {row.eps}, verdict {row.verdict})" if row.norm else ""
    return f"{row.attack}{threat}"


def percent(rate: float | None) -> str:
    """Write a rate in per cent; the sign is in the heading.

    >>> percent(0.4257), percent(None)
    ('42.6', 'no samples')
    """
    return NO_SAMPLES if rate is None else f"{100 * rate:.1f}"


def _fact(name: str, report: ConditionReport, about: Mapping[str, object]) -> str:
    """What a condition says of itself; where it says nothing, what the whole audit says."""
    return str(getattr(report, name) or about.get(name, ""))


def _eps_label(own: float | None, about: Mapping[str, object]) -> str:
    """Write a condition's own radius; where it says none, what the whole audit says."""
    eps = about.get("eps", "") if own is None else own
    return spell_eps(eps) if isinstance(eps, float) else str(eps)


def weights_label(audit: AuditedWeights, among: Sequence[AuditedWeights]) -> str:
    """Name the weights of a recipe.

    `last` is the recipe itself, unless it also has averages: then `last` is "live".
    """
    average, keep = average_and_keep(audit.weights)
    averaged = _has_averages(audit.recipe) or any(
        other.run == audit.run and average_and_keep(other.weights)[0] for other in among
    )
    words = [average or ("live" if averaged and keep in ("last", "best") else "")]
    words.append(keep if keep != "last" else "")
    inside = ", ".join(word for word in words if word)
    return f"{audit.recipe} ({inside})" if inside else audit.recipe


def _weights_order(audit: AuditedWeights) -> tuple[str, bool, str]:
    """The trained weights before their averages, the last ones before the best."""
    average, keep = average_and_keep(audit.weights)
    return average, keep != "last", keep


def captions(audits: Sequence[AuditedWeights]) -> list[str]:
    """Say under a table what its numbers are: attack, radius, split, sample sizes."""
    rows = summary_rows(audits)
    lines = [
        "Accuracy in per cent; the class is named beside worst and best, and beside the worst the "
        "95 % interval of the truly worst class."
    ]
    attacks = _distinct(attack_words(row) for row in rows if row.attack)
    if attacks:
        lines.append(f"Robust: {'; '.join(attacks)}.")
    lines += _distinct(sample_note(audit) for audit in audits)
    lines += [words for audit in audits if (words := mix_note(audit))]
    for row in rows:
        for side in SIDES:
            report = row.side(side)
            empty = classes_without_samples(report) if report else []
            if empty:
                lines.append(f"Split {row.split}, {NO_SAMPLES}: {few_names(empty, 10)}.")
    return _distinct(lines)


def remarks(audits: Sequence[AuditedWeights]) -> list[str]:
    """Say what a reader must know before believing the numbers, audit by audit."""
    return _distinct(
        f"{audit.run} ({audit.recipe}, {audit.weights}): {words}"
        for audit in audits
        for words in audit.report.remarks
    )


def worst_class_warning(rows: Sequence[SummaryRow]) -> str:
    """Warn of too few samples for a claim about the worst class, for the best row on average."""
    found = [(row, report) for row in rows if (report := row.robust or row.clean)]
    found = [(row, report) for row, report in found if not report.unfinished]
    found.sort(key=lambda pair: -pair[1].overall)
    # the last of each is under the attack that leaves it least: a weak one would be no claim
    hardest = {(one.run, one.recipe, one.weights, one.split): (one, two) for one, two in found}
    if not (pairs := list(hardest.values())):
        return ""
    row, report = max(pairs, key=lambda pair: pair[1].overall)
    under = "" if f", {report.condition}" in row.label else f" under {report.condition}"
    best = ", the best on average," if len(pairs) > 1 else ""
    return f"For {row.label}{under}{best} there are {words}." if (words := report.warning) else ""


def sample_note(audit: AuditedWeights) -> str:
    """Tell the split and how many samples there are, in all and per class.

    Conditions that saw another number than the first say so: their averages are of other images.
    """
    first = next(iter(audit.report.values()))
    sizes = first.counts.sizes
    low, high, whole = int(sizes.min()), int(sizes.max()), int(sizes.sum())
    each = f"{low}" if low == high else f"{low} to {high}"
    others: dict[int, list[str]] = {}
    for one in audit.report.values():
        count = int(one.counts.sizes.sum())
        if count != whole and not one.unfinished:
            others.setdefault(count, []).append(one.condition)
    unlike = [f"{few_names(names)}: {count}" for count, names in others.items()]
    beside = f" ({first.condition}; {'; '.join(unlike)})" if unlike else ""
    return f"Split {audit.split}: {whole} samples, {each} per class{beside}."


def mix_note(audit: AuditedWeights) -> str:
    """Say that an average is over a balanced choice, and what it is in the mix of the split."""
    said = {name: one.mix_average for name, one in audit.report.items()}
    rates = [f"{name} {percent(rate)}" for name, rate in said.items() if rate is not None]
    if not rates:
        return ""
    return (
        "Average: balanced, over as many images of each class; in the mix of the whole split it is "
        f"{', '.join(rates)}."
    )


def _told_apart(rows: list[SummaryRow]) -> list[SummaryRow]:
    """Add to the labels whatever differs between rows, and the run where nothing else does."""
    if len({row.split for row in rows}) > 1:
        rows = [replace(row, label=f"{row.label}, {row.split}") for row in rows]
    if len({row.attack for row in rows if row.attack}) > 1:
        rows = [
            replace(row, label=f"{row.label}, {row.attack}") if row.attack else row for row in rows
        ]
    unsaid = [row for row in rows if row.norm and "eps=" not in row.attack]
    if len({(row.norm, row.eps) for row in unsaid}) > 1:
        rows = [
            replace(row, label=f"{row.label}, {row.norm} eps {row.eps}") if row in unsaid else row
            for row in rows
        ]
    rows = [
        replace(row, label=f"{row.label}, {IN_PART}")
        if any((report := row.side(side)) and report.unfinished for side in SIDES)
        else row
        for row in rows
    ]
    count = Counter(row.label for row in rows)
    return [
        replace(row, label=f"{row.label} [{row.run}]") if count[row.label] > 1 else row
        for row in rows
    ]


def _has_averages(recipe: str) -> bool:
    """Whether a built-in method of a recipe averages weights; what others do, nobody loads here."""
    kinds = [METHODS[name] for name in recipe.split("+") if name in METHODS]
    base = [] if any(kind.base for kind in kinds) else [METHODS["trades"]]
    try:
        return bool(compose(kind() for kind in [*base, *kinds]).slots.averages)
    except ClasswiseError:  # no recipe of ours
        return False


def _distinct(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(lines))
