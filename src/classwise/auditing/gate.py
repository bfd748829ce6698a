"""Class regression tests: a contract in TOML against the audits of a run."""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from xml.etree import ElementTree

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from classwise.auditing.intervals import Rates, exact, simultaneous
from classwise.auditing.paired import paired_interval
from classwise.auditing.remarks import said_of
from classwise.auditing.stored import StoredAudit, diff_stored, read_stored
from classwise.errors import ClasswiseError, unknown
from classwise.spelling import parse_eps, spell_eps

Status = Literal["passed", "failed", "undecided"]


def parse_share(value: Any) -> float:
    """Read a share as people write it; a bare 15 is refused, since it might be 15 % or 1500 %.

    >>> parse_share("15 %"), parse_share("3 points"), parse_share(0.4)
    (0.15, 0.03, 0.4)
    """
    text = re.fullmatch(r"\s*([0-9.]+)\s*(%|per cent|percent|points?)\s*", str(value))
    try:
        share = float(text[1]) / 100 if text else float(value)
    except (TypeError, ValueError):
        share = math.nan
    if isinstance(value, bool) or not 0 <= share <= 1:
        raise ValueError(f'{value!r} is no share; write 0.15, "15 %" or "3 points"')
    return share


Share = Annotated[float, BeforeValidator(parse_share)]
_DEMANDS = ("no_class_below", "at_least", "overall_at_least", "no_class_drops_more_than")


class Rule(BaseModel):
    """One demand under one attack.

    Without `confidence` the observed rates decide; with it a rule fails only where the data prove
    it broken, and `strict` also fails what they leave undecided.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    under: str
    no_class_below: Share | None = None
    class_name: str | None = Field(None, alias="class")
    at_least: Share | None = None
    overall_at_least: Share | None = None
    no_class_drops_more_than: Share | None = None
    confidence: float | None = Field(None, gt=0.5, lt=1)
    strict: bool = False
    # a contract does not know the norm, so it may ask for any radius
    eps: Annotated[float | None, BeforeValidator(lambda eps: parse_eps(eps, "L2"))] = None

    @model_validator(mode="after")
    def _one_demand(self) -> Rule:
        given = [name for name in _DEMANDS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"a rule makes one demand, this one {len(given)}; give one of {', '.join(_DEMANDS)}"
            )
        if (self.class_name is None) != (self.at_least is None):
            raise ValueError('a named class needs both: class = "person" and at_least = "40 %"')
        return self

    @property
    def words(self) -> str:
        """The rule as a sentence."""
        eps = "" if self.eps is None else f" at eps {spell_eps(self.eps)}"
        sure = "" if self.confidence is None else f" ({100 * self.confidence:g} % confidence)"
        if self.no_class_below is not None:
            demand = f"no class below {_percent(self.no_class_below)}"
        elif self.at_least is not None:
            demand = f"{self.class_name} at least {_percent(self.at_least)}"
        elif self.overall_at_least is not None:
            demand = f"overall at least {_percent(self.overall_at_least)}"
        else:
            drop = 100 * (self.no_class_drops_more_than or 0)
            sure = f" ({100 * (self.confidence or 0.95):g} % confidence)"
            demand = f"no class drops more than {drop:.3g} points against the baseline"
        return f"{demand} under {self.under}{eps}{sure}"


class Contract(BaseModel):
    """What a model must keep, rule by rule."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rule: list[Rule] = Field(min_length=1)
    name: str = "classwise gate"
    weights: str = ""
    split: str = "test"


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
    before = None if baseline is None else read_stored(baseline, **chosen)
    return check(rules, read_stored(run, **chosen), before)


def load_contract(path: Path) -> Contract:
    """Read a contract; every mistake is named with its rule."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as reason:
        raise ClasswiseError(f"cannot read {path}: {reason.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as reason:
        raise ClasswiseError(f"{path} is not TOML: {reason}") from None
    try:
        return Contract.model_validate(content)
    except ValidationError as reason:
        words = []
        for error in reason.errors():
            place = [str(p + 1) if isinstance(p, int) else str(p) for p in error["loc"]]
            words.append(f"{' '.join(place)}: {error['msg'].removeprefix('Value error, ')}")
        raise ClasswiseError(f"{path}: {'; '.join(words)}") from None


def check(contract: Contract, audit: StoredAudit, baseline: StoredAudit | None) -> GateReport:
    """Decide every rule of a contract."""
    outcomes = tuple(_decide(rule, audit, baseline) for rule in contract.rule)
    said = said_of(audit.remarks)
    said += [f"baseline: {words}" for words in said_of(baseline.remarks)] if baseline else []
    return GateReport(contract.name, audit.name, outcomes, tuple(said))


def _decide(rule: Rule, audit: StoredAudit, baseline: StoredAudit | None) -> Outcome:
    label = audit.label(rule.under, rule.eps)
    found = audit.conditions[label]
    if rule.eps is not None and not audit.has_radius(label, rule.eps):
        hint = f", or write {rule.eps:g}/255" if rule.eps >= 1 else ""
        raise ClasswiseError(
            f"the rule {rule.words!r} asks for eps {spell_eps(rule.eps)}, but {audit.name} was "
            f"audited at {spell_eps(float(found.radius.max(initial=0)))}; audit it again with that "
            f"eps{hint}"
        )
    if rule.no_class_drops_more_than is not None:
        return _drop(rule, label, audit, baseline)
    unfinished = _unfinished(rule, (audit, label))
    if unfinished is not None:
        return unfinished
    names = audit.class_names
    sizes = np.bincount(found.label, minlength=len(names)).astype(np.float64)
    hits = np.bincount(found.label[found.correct], minlength=len(names)).astype(np.float64)
    if rule.class_name is not None:
        if rule.class_name not in names:
            raise unknown(f"class in {audit.name}", rule.class_name, names)
        chosen = [names.index(rule.class_name)]
        sizes, hits, names, bar = sizes[chosen], hits[chosen], (rule.class_name,), rule.at_least
    elif rule.overall_at_least is not None:
        sizes, hits, names = sizes.sum(keepdims=True), hits.sum(keepdims=True), ("overall",)
        bar = rule.overall_at_least
    else:
        bar = rule.no_class_below
    with np.errstate(invalid="ignore"):
        rates = hits / sizes
    low = high = rates
    if rule.confidence is not None:
        low, high = (simultaneous if len(names) > 1 else exact)(hits, sizes, rule.confidence)
    return _outcome(rule, names, rates, low, high, float(bar or 0), sizes, "")


def _unfinished(rule: Rule, *audits: tuple[StoredAudit, str]) -> Outcome | None:
    """No verdict on an audit that chose its images by what it saw of them, and stopped early."""
    for audit, label in audits:
        if label in audit.unfinished:
            why = (
                f"{audit.name} was examined only in part under {label} "
                f"({audit.unfinished[label]}); audit it in full"
            )
            return Outcome(rule, "undecided", why, groundless=True)
    return None


def _drop(rule: Rule, label: str, audit: StoredAudit, baseline: StoredAudit | None) -> Outcome:
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
    (change,) = diff_stored(baseline, audit, attacks=(twins[0],), draws=1)
    present = int((change.sizes > 0).sum())
    # One-sided in each class, and shared out so that all classes hold at once (Bonferroni).
    level = 1 - 2 * (1 - (rule.confidence or 0.95)) / max(present, 1)
    low, high = paired_interval(change.lost, change.won, change.sizes, max(level, 1e-6))
    bar = -float(rule.no_class_drops_more_than or 0)
    sizes = change.sizes.astype(np.float64)
    names = audit.class_names
    decided = _outcome(rule, names, change.by_class, low, high, bar, sizes, "changed by ")
    if not change.unpaired:
        return decided
    alone = f"{change.unpaired} images were seen by one model only and left out"
    return decided._replace(why=f"{decided.why}; {alone}")


def _outcome(
    rule: Rule,
    names: tuple[str, ...],
    rates: Rates,
    low: Rates,
    high: Rates,
    bar: float,
    sizes: Rates,
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
        value = f"{100 * rates[k]:+.1f} points" if verb else _percent(rates[k])
        span = "" if low is rates else f", {100 * low[k]:.1f} to {100 * high[k]:.1f}"
        words.append(f"{names[k]} {verb}{value} ({int(sizes[k])} images{span})")
    words += [f"and {len(shown) - 8} more"] if len(shown) > 8 else []
    if empty:
        words.append(f"no images of {', '.join(empty[:8])}{', …' if len(empty) > 8 else ''}")
    return Outcome(rule, status, "; ".join(words), groundless=len(empty) == len(names))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _cell(text: str) -> str:
    return re.sub(r"([\\|*_<>`\[\]])", r"\\\1", " ".join(text.split()))


def _legal(text: str) -> str:
    """Drop what XML cannot carry."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
