"""Made-up audits with hostile class names, and how they look when printed."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from classwise.judging.audits import AuditedWeights
from classwise.judging.metrics import ClassReport, ConditionReport, count_predictions
from classwise.report.classes import class_table

HOSTILE = ("<script>alert(1)</script>", "a|b", "R&D", "50 % off", "two\nlines", "{\\x}_$1^~#")
MANY = pytest.mark.parametrize("count", [2, 10, 100, 1000])


def names_of(count):
    return (*HOSTILE, *(f"class {k}" for k in range(len(HOSTILE), count)))[:count]


def audited(count, *, per_class=20, empty=(), seed=0, unfinished=""):
    """A made-up audit: rates that differ from class to class, under two conditions."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.setdiff1d(np.arange(count), empty), per_class)
    conditions = []
    for name, chance, eps, verdict in (
        ("clean", 0.9, 0.0, "last"),
        ("pgd-20", 0.5, 8 / 255, "any"),
    ):
        rates = np.clip(chance + 0.4 * (random.random(count) - 0.5), 0, 1)
        right = random.random(len(labels)) < rates[labels]
        told = np.where(right, labels, (labels + 1) % count)
        counts = count_predictions(labels, told, count)
        facts = {"eps": eps, "norm": "Linf", "verdict": verdict, "unfinished": unfinished}
        conditions.append(ConditionReport(name, counts, names_of(count), **facts))
    report = ClassReport(conditions, {"eps": 8 / 255, "norm": "Linf"})
    return AuditedWeights("run", "at", "last", "test", report)


def printed(thing, width=100):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(thing)
    return console.export_text()


def shown(audit, *, everything=False, width=120):
    table = class_table(audit, "at", everything=everything, command="classwise --classes all")
    return printed(table, width)
