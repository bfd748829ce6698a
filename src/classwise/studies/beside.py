"""A paper's words beside ours: of which conditions and weights a claim of it is read."""

from __future__ import annotations

from functools import cache

from classwise.attacks.corruption import PREFIX
from classwise.errors import ClasswiseError
from classwise.judging.audits import AuditedWeights
from classwise.judging.metrics import ClassReport, ConditionReport
from classwise.recipe_text import parse_recipe
from classwise.spelling import average_and_keep
from classwise.studies.found import AVERAGED, FoundRun, Hole
from classwise.studies.readings import CORRUPTIONS

EACH = "each corruption"  # one after the other, severities pooled
# What may be read in place of a paper's condition where that was not audited, the nearest first.
# FAIR-TAT's table 2 asks whether fairness carries over to AutoAttack, so PGD cannot stand for it
# there; CFA's tables take AutoAttack as the measure of robustness.
STAND_INS = {
    "pgd-10": ("pgd-20",),
    "pgd-20": ("pgd-10",),
    "pgd-40": ("pgd-20",),
}
STAND_INS_OF_PAPER = {("wei", "autoattack"): ("pgd-20",)}


def conditions_for(paper: str, condition: str) -> tuple[str, ...]:
    """The paper's condition and what may stand for it, the nearest first.

    >>> conditions_for("wei", "autoattack"), conditions_for("medi", "autoattack")
    (('autoattack', 'pgd-20'), ('autoattack',))
    """
    others = STAND_INS_OF_PAPER.get((paper, condition), STAND_INS.get(condition, ()))
    return (condition, *others)


def weights_for(weights: str) -> str:
    """The weights that a paper prints: those of the average, where a row has one.

    >>> weights_for("best"), weights_for("fawa-best")
    ('averaged-best', 'fawa-best')
    """
    average, keep = average_and_keep(weights or "last")
    return weights if average else f"{AVERAGED}-{keep}"


def audit_of(run: FoundRun, weights: str) -> AuditedWeights:
    """An audit of a run; one of its trained weights is none of the average that a row is about."""
    audit = run.audit(weights)
    asked, found = (average_and_keep(name)[0] for name in (weights, audit.weights))
    if asked == AVERAGED and not found and _averages(run.labels.get("recipe", "")):
        raise Hole("its average was not audited, or never began")
    return audit


@cache
def _averages(recipe: str) -> bool:
    """Whether a recipe averages weights."""
    try:
        return bool(recipe and parse_recipe(recipe).slots.averages)
    except ClasswiseError:  # with a method that is not built in: nobody loads it here
        return False


def parts_of(run: FoundRun, condition: str, weights: str) -> tuple[ConditionReport, ...]:
    """The reports that a condition is made of: one, or every severity of the corruptions meant."""
    families = _corruptions(audit_of(run, weights).report)
    if condition == CORRUPTIONS:
        found = [one for parts in families.values() for one in parts]
    else:
        found = families.get(condition, [])
    if found:
        return tuple(found)
    if condition in (CORRUPTIONS, EACH):
        raise Hole("no corruption was audited")
    return (run.report(condition, weights),)


def corruption_types(run: FoundRun, weights: str) -> tuple[str, ...]:
    """The types of corruption that were audited."""
    return tuple(_corruptions(audit_of(run, weights).report))


def _corruptions(report: ClassReport) -> dict[str, list[ConditionReport]]:
    """All severities of every type, by its plain name."""
    found: dict[str, list[ConditionReport]] = {}
    for one in report.values():
        if one.kind == "shift" and one.family.startswith(PREFIX) and not one.unfinished:
            found.setdefault(one.family.removeprefix(PREFIX), []).append(one)
    return found
