"""Class regression tests: a contract in TOML against the audits of a run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple
from xml.etree import ElementTree

import numpy as np

from classwise.errors import ClasswiseError, unknown
from classwise.judging.contract import Contract, Rule, load_contract, parse_share, percent
from classwise.judging.rates import Whole
from classwise.judging.samples import AuditedSamples, diff_samples, read_samples
from classwise.record.remarks import said_of
from classwise.spelling import spell_eps
from classwise.statistics.intervals import Rates, exact, simultaneous
from classwise.statistics.paired import paired_interval

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

Status = Literal["passed", "failed", "undecided"]


class Outcome(NamedTuple):
    """How one rule ended, and why in words."""

    rule: Rule
    status: Status
    why: str
    groundless: bool = False  # undecided for want of an audit or of any image, not of certainty

    @property
    def holds(self) -> bool:
        """Whether the gate may open."""
        lenient = not self.rule.strict and not self.groundless
        return self.status == "passed" or (self.status == "undecided" and lenient)


@dataclass(frozen=True)
class GateReport:
    """All outcomes; `exit_code` is 0 where every rule holds, 1 where one is broken, else 3."""

    name: str
    run: str
    outcomes: tuple[Outcome, ...]
    remarks: tuple[str, ...] = ()  # what a reader must know of the audit itself

    @property
    def passed(self) -> bool:
        """Whether every rule holds."""
        return all(one.holds for one in self.outcomes)

    @property
    def exit_code(self) -> int:
        """For the shell: 0 yes, 1 no, 3 where nothing is broken but a rule cannot be decided."""
        broken = any(one.status == "failed" for one in self.outcomes)
        return 1 if broken else 0 if self.passed else 3

    @property
    def headline(self) -> str:
        """One sentence."""
        broken = sum(one.status == "failed" for one in self.outcomes)
        open_ones = sum(one.status == "undecided" for one in self.outcomes)
        of = f"of {len(self.outcomes)} rules"
        words = f"{broken} {of} broken" if broken else "passed" if self.passed else ""
        undecided = f"{open_ones} {'' if words else f'{of} '}undecided" if open_ones else ""
        return f"{self.name}: {', '.join(filter(None, [words, undecided]))} ({self.run})"

    def markdown(self) -> str:
        """Write a comment for a pull request."""
        marks = {"passed": "✅", "undecided": "⚠️"}
        lines = [f"### {_cell(self.headline)}", "", "| | rule | found |", "| --- | --- | --- |"]
        for one in self.outcomes:
            mark = marks[one.status] if one.holds else "❌"
            lines.append(f"| {mark} {one.status} | {_cell(one.rule.words)} | {_cell(one.why)} |")
        lines += ["", *(f"> {_cell(words)}" for words in self.remarks)] if self.remarks else []
        return "\n".join(lines) + "\n"

    def junit(self) -> str:
        """Write JUnit XML: a test case per rule, undecided ones that may pass as skipped."""
        failures = sum(not one.holds for one in self.outcomes)
        skipped = sum(one.holds and one.status == "undecided" for one in self.outcomes)
        counts = {"tests": len(self.outcomes), "failures": failures, "skipped": skipped}
        facts = {key: str(value) for key, value in counts.items()}
        suite = ElementTree.Element("testsuite", {"name": _legal(self.name), **facts})
        for one in self.outcomes:
            case = ElementTree.SubElement(
                suite, "testcase", {"classname": _legal(self.run), "name": _legal(one.rule.words)}
            )
            tag = "failure" if not one.holds else "skipped" if one.status == "undecided" else ""
            if tag:
                ElementTree.SubElement(case, tag, {"message": _legal(one.why)})
            else:
                ElementTree.SubElement(case, "system-out").text = _legal(one.why)
        ElementTree.indent(suite)
        return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, "unicode")


def gate(contract: Path, run: Path, baseline: Path | None = None) -> GateReport:
    """Hold the audits of a run against a contract file."""
    rules = load_contract(contract)
    chosen = {"weights": rules.weights, "split": rules.split}
    before = None if baseline is None else read_samples(baseline, **chosen)
    return check(rules, read_samples(run, **chosen), before)


def check(contract: Contract, audit: AuditedSamples, baseline: AuditedSamples | None) -> GateReport:
    """Decide every rule of a contract."""
    outcomes = tuple(_decide(rule, audit, baseline) for rule in contract.rule)
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
    groups = audit.grouping(rule.grouping)
    tally = groups.tally(found.sample, found.label, found.correct)
    names, hits, sizes = tally.names, tally.hits, tally.sizes
    bar, outside = rule.floor, tally.outside
    if rule.member is not None:
        if rule.member not in names:
            raise unknown(f"{rule.grouping} in {audit.name}", rule.member, names)
        chosen = [names.index(rule.member)]
        sizes, hits, names, bar = sizes[chosen], hits[chosen], (rule.member,), rule.at_least
        outside = 0  # they are of no concern to one group
    elif rule.overall_at_least is not None:
        sizes, hits, names = sizes.sum(keepdims=True), hits.sum(keepdims=True), ("overall",)
        bar = rule.overall_at_least
    with np.errstate(invalid="ignore"):
        rates = hits / sizes
    low = high = rates
    if rule.confidence is not None and len(names) > 1:
        overlap = tally.overlapping
        low, high = simultaneous(hits, sizes, rule.confidence, overlapping=overlap)
    elif rule.confidence is not None:
        low, high = exact(hits, sizes, rule.confidence)
    decided = _outcome(rule, names, rates, low, high, float(bar or 0), sizes, "")
    return _adding(decided, outside, "images are in no group")


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
    present = int((change.sizes > 0).sum())
    # One-sided in each class, and shared out so that all classes hold at once (Bonferroni).
    level = 1 - 2 * (1 - (rule.confidence or 0.95)) / max(present, 1)
    low, high = paired_interval(change.lost, change.won, change.sizes, max(level, 1e-6))
    bar, names = -float(rule.drop or 0), change.class_names
    decided = _outcome(rule, names, change.by_class, low, high, bar, change.sizes, "changed by ")
    alone = "images were seen by one model only and left out"
    return _adding(decided, change.unpaired, alone)


def _outcome(
    rule: Rule,
    names: tuple[str, ...],
    rates: Rates,
    low: Rates,
    high: Rates,
    bar: float,
    sizes: Whole,
    verb: str,
) -> Outcome:
    """Broken where even the upper end is below the bar, kept where even the lower end is not."""
    bar -= 1e-12  # 57 of 200 is 28.5 %, whatever the last digit says
    empty = [name for name, size in zip(names, sizes, strict=True) if not size]
    broken, kept = high < bar, (low >= bar) | (sizes == 0)
    status: Status = "failed" if broken.any() else "passed" if kept.all() else "undecided"
    if empty and status == "passed":
        status = "undecided"
    shown = np.flatnonzero(broken) if broken.any() else np.flatnonzero(~kept & (sizes > 0))
    if not len(shown) and not np.isnan(rates).all():
        shown = np.array([int(np.nanargmin(rates))])
    shown = shown[np.argsort(rates[shown], kind="stable")]
    words: list[str] = []
    for k in shown[:8]:
        value = f"{100 * rates[k]:+.1f} points" if verb else percent(rates[k])
        span = "" if low is rates else f", {100 * low[k]:.1f} to {100 * high[k]:.1f}"
        words.append(f"{names[k]} {verb}{value} ({int(sizes[k])} images{span})")
    words += [f"and {len(shown) - 8} more"] if len(shown) > 8 else []
    if empty:
        words.append(f"no images of {', '.join(empty[:8])}{', …' if len(empty) > 8 else ''}")
    return Outcome(rule, status, "; ".join(words), groundless=len(empty) == len(names))


def _cell(text: str) -> str:
    return re.sub(r"([\\|*_<>`\[\]])", r"\\\1", " ".join(text.split()))


def _legal(text: str) -> str:
    """Drop what XML cannot carry."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
