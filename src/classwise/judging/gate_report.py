"""How a gate ended, rule by rule: for the shell, for JUnit and for a pull request."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple
from xml.etree import ElementTree

from classwise.judging.contract import Rule

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
        lenient = not (self.rule.strict or self.rule.sure or self.groundless)
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
        """Write JUnit XML: a test case per rule; undecided ones are skipped, or fail if strict."""
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
                why = one.why if one.status == "failed" else f"{one.status}: {one.why}"
                ElementTree.SubElement(case, tag, {"type": one.status, "message": _legal(why)})
            else:
                ElementTree.SubElement(case, "system-out").text = _legal(one.why)
        ElementTree.indent(suite)
        return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, "unicode")


def _cell(text: str) -> str:
    return re.sub(r"([\\|*_<>`\[\]])", r"\\\1", " ".join(text.split()))


def _legal(text: str) -> str:
    """Drop what XML cannot carry."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
