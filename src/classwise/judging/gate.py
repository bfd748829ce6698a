"""Class regression tests: a contract in TOML against the audits of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from classwise.errors import ClasswiseError, unknown
from classwise.judging.contract import Contract, Rule, load_contract, parse_share, percent
from classwise.judging.gate_report import GateReport, Outcome, Status
from classwise.judging.rates import Whole
from classwise.judging.samples import AuditedSamples, diff_samples, read_samples
from classwise.record.remarks import said_of
from classwise.spelling import spell_eps
from classwise.statistics.exact_change import lower_bound, surely_above, surely_below, upper_bound
from classwise.statistics.intervals import Rates, exact, simultaneous

__all__ = [
    "Contract",
    "GateReport",
    "Outcome",
    "Rule",
    "check",
    "gate",
    "load_contract",
    "parse_share",
]


Mask = npt.NDArray[np.bool_]
_SHOWN = 8  # classes named in one sentence


class _Found(NamedTuple):
    """What was counted of the classes, groups or all that a rule is about."""

    names: tuple[str, ...]
    rates: Rates  # accuracies, or changes of them
    sizes: Whole
    broken: Mask  # the rule is broken there
    kept: Mask  # it is kept there
    proven: Mask  # it is kept there even by the lower end of the interval
    ends: Callable[[Whole], tuple[Rates, Rates]]  # the intervals of some of them
    by_interval: bool = True  # intervals decide, rather than what was seen
    verb: str = ""


def gate(
    contract: Path, run: Path, baseline: Path | None = None, *, strict: bool = False
) -> GateReport:
    """Hold the audits of a run against a contract file; `strict` makes every rule so."""
    rules = load_contract(contract)
    chosen = {"weights": rules.weights, "split": rules.split}
    before = None if baseline is None else read_samples(baseline, **chosen)
    return check(rules, read_samples(run, **chosen), before, strict=strict)


def check(
    contract: Contract,
    audit: AuditedSamples,
    baseline: AuditedSamples | None,
    *,
    strict: bool = False,
) -> GateReport:
    """Decide every rule of a contract."""
    outcomes = tuple(_decide(rule, audit, baseline) for rule in contract.rules(strict=strict))
    said = said_of(audit.remarks)
    said += [f"baseline: {words}" for words in said_of(baseline.remarks)] if baseline else []
    return GateReport(contract.name, audit.name, outcomes, tuple(said))


def _decide(rule: Rule, audit: AuditedSamples, baseline: AuditedSamples | None) -> Outcome:
    label = audit.label(rule.under, rule.eps)
    found = audit.conditions[label]
    if rule.eps is not None and not audit.has_radius(label, rule.eps):
        hint = f", or write {rule.eps:g}/255" if rule.eps >= 1 else ""
        raise ClasswiseError(
            f"the rule {rule.words!r} asks for eps {spell_eps(rule.eps)}, but {audit.name} was "
            f"audited at {spell_eps(float(found.radius.max(initial=0)))}; audit it again with that "
            f"eps{hint}"
        )
    if rule.drop is not None:
        return _drop(rule, label, audit, baseline)
    unfinished = _unfinished(rule, (audit, label))
    if unfinished is not None:
        return unfinished
    tally = audit.grouping(rule.grouping).tally(found.sample, found.label, found.correct)
    outside = 0 if rule.member is not None else tally.outside  # no concern to one group
    names, (hits, sizes) = _chosen(rule, audit, tally.names, tally.hits, tally.sizes)
    bar = rule.floor if rule.at_least is None else rule.at_least
    bar = rule.overall_at_least if bar is None else bar
    rated = _rates(rule, names, hits, sizes, float(bar or 0), overlapping=tally.overlapping)
    return _adding(_outcome(rule, rated), outside, "images are in no group")


def _chosen(
    rule: Rule, audit: AuditedSamples, names: tuple[str, ...], *counts: Whole
) -> tuple[tuple[str, ...], tuple[Whole, ...]]:
    """The counts of those whom the rule is about."""
    if rule.overall:
        return ("overall",), tuple(part.sum(keepdims=True) for part in counts)
    if rule.member is None:
        return names, counts
    if rule.member not in names:
        raise unknown(f"{rule.grouping} in {audit.name}", rule.member, names)
    one = names.index(rule.member)
    return (rule.member,), tuple(part[one : one + 1] for part in counts)


def _rates(
    rule: Rule,
    names: tuple[str, ...],
    hits: Whole,
    sizes: Whole,
    bar: float,
    *,
    overlapping: bool,
) -> _Found:
    """Hold accuracies against a bar; their intervals hold for all classes at once."""
    bar -= 1e-12  # 57 of 200 is 28.5 %, whatever the last digit says
    with np.errstate(invalid="ignore"):
        rates = hits / sizes
    if len(names) > 1:
        low, high = simultaneous(hits, sizes, rule.level, overlapping=overlapping)
    else:
        low, high = exact(hits, sizes, rule.level)
    by_interval = rule.confidence is not None or rule.sure
    at_most, at_least = (high, low) if by_interval else (rates, rates)
    return _Found(
        *(names, rates, sizes, at_most < bar, at_least >= bar, low >= bar),
        lambda some: (low[some], high[some]),
        by_interval,
    )


def _adding(decided: Outcome, count: int, words: str) -> Outcome:
    """Say what was left out."""
    return decided._replace(why=f"{decided.why}; {count} {words}") if count else decided


def _unfinished(rule: Rule, *audits: tuple[AuditedSamples, str]) -> Outcome | None:
    """No verdict on an audit that chose its images by what it saw of them, and stopped early."""
    for audit, label in audits:
        if label in audit.unfinished:
            why = (
                f"{audit.name} was examined only in part under {label} "
                f"({audit.unfinished[label]}); audit it in full"
            )
            return Outcome(rule, "undecided", why, groundless=True)
    return None


def _drop(
    rule: Rule, label: str, audit: AuditedSamples, baseline: AuditedSamples | None
) -> Outcome:
    if baseline is None:
        raise ClasswiseError(f"the rule {rule.words!r} needs a baseline; add --baseline RUN")
    key = audit.stamps[label].attack_key
    twins = [label for label, stamp in baseline.stamps.items() if stamp.attack_key == key]
    if not twins:
        raise ClasswiseError(
            f"the baseline {baseline.name} was not audited under {rule.under} as {audit.name} was "
            f"(attack, eps, norm, seed and verdict alike); it has {', '.join(baseline.conditions)}"
        )
    unfinished = _unfinished(rule, (audit, label), (baseline, twins[0]))
    if unfinished is not None:
        return unfinished
    (change,) = diff_samples(baseline, audit, attacks=(twins[0],), grouping=rule.grouping, draws=1)
    names, counts = _chosen(rule, audit, change.class_names, change.lost, change.won, change.sizes)
    dropped = _changes(rule, names, *counts)
    alone = "images were seen by one model only and left out"
    return _adding(_outcome(rule, dropped), change.unpaired, alone)


def _changes(rule: Rule, names: tuple[str, ...], lost: Whole, won: Whole, sizes: Whole) -> _Found:
    """Hold changes against the drop that is allowed, each with a test that is exact.

    A rule fails wrongly where any of K classes does, so each has the K-th part of the error
    (Bonferroni: classes or groups may depend on each other as they like). It passes wrongly only
    where one given class does, the one that truly dropped: there the error is not shared.
    """
    limit, error = -float(rule.drop or 0), 1 - rule.level
    shared = error / max(int((sizes > 0).sum()), 1)
    kept = surely_above(lost, won, sizes, limit, error)
    with np.errstate(invalid="ignore"):
        rates = (won - lost) / sizes

    def ends(some: Whole) -> tuple[Rates, Rates]:
        counts = lost[some], won[some], sizes[some]
        return lower_bound(*counts, error), upper_bound(*counts, shared)

    broken = surely_below(lost, won, sizes, limit, shared)
    return _Found(names, rates, sizes, broken, kept, kept, ends, verb="changed by ")


def _outcome(rule: Rule, found: _Found) -> Outcome:
    """Decide a rule on what was counted, and say on which classes."""
    there = found.sizes > 0
    empty = [name for name, some in zip(found.names, there, strict=True) if not some]
    broken, open_ones, unsure = found.broken & there, ~found.kept & there, ~found.proven & there
    if rule.sure:
        broken = unsure
    status: Status = "failed" if broken.any() else "undecided" if open_ones.any() else "passed"
    if empty and status == "passed":
        status = "undecided"
    shown = next((np.flatnonzero(m) for m in (broken, open_ones, unsure) if m.any()), None)
    if shown is None:
        shown = np.flatnonzero(there)[np.argsort(found.rates[there], kind="stable")][:1]
    words = _words(found, shown[np.argsort(found.rates[shown], kind="stable")], bool(unsure.any()))
    if empty:
        words.append(f"no images of {', '.join(empty[:_SHOWN])}{', …' if empty[_SHOWN:] else ''}")
    if unsure.any() and status == "passed":
        words.append(f"passed as seen, but the {100 * rule.level:g} % interval reaches below that")
    if rule.sure and status == "failed" and not found.broken.any():
        words.append("not proven: the interval reaches below that")
    return Outcome(rule, status, "; ".join(words), groundless=len(empty) == len(found.names))


def _words(found: _Found, shown: Whole, doubtful: bool) -> list[str]:
    """What was seen of some classes, with intervals where they decide or cast doubt."""
    words, named = [], shown[:_SHOWN]
    spans = [""] * len(named)
    if len(named) and (found.by_interval or doubtful):
        pairs = zip(*found.ends(named), strict=True)
        spans = [f", {100 * low:.1f} to {100 * high:.1f}" for low, high in pairs]
    for k, span in zip(named, spans, strict=True):
        rate = found.rates[k]
        value = f"{found.verb}{100 * rate:+.1f} points" if found.verb else percent(rate)
        words.append(f"{found.names[k]} {value} ({int(found.sizes[k])} images{span})")
    words += [f"and {len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
    return words
