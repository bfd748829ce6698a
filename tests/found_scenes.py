"""Runs of a made-up study: confusion tables are all that an artefact needs of an audit."""

from types import SimpleNamespace

import numpy as np
import torch

from classwise.classes.counts import ClassCounts
from classwise.judging.audits import AuditedWeights
from classwise.judging.metrics import ClassReport, ConditionReport
from classwise.report.runs import ReportRun
from classwise.studies.found import Found, FoundRun

STUDY = SimpleNamespace(title="made up", paper="wei", source="table 1")


def confusion(seed, classes=3, size=20):
    """Right answers and mistakes of as many images of each class, by chance."""
    draw = np.random.default_rng(seed)
    return np.stack(
        [draw.multinomial(size, draw.dirichlet(np.ones(classes))) for _ in range(classes)]
    )


def report(condition, table, names=None, **facts):
    table = torch.tensor(np.asarray(table, np.int64))
    names = tuple(names or "abcdefghijklmnopqrstuvwxyz"[: len(table)])
    facts = {"eps": 0.1, "norm": "Linf", "verdict": "last", **facts}
    return ConditionReport(condition, ClassCounts(table), names, **facts)


def audited(reports, weights="last", split="test"):
    return AuditedWeights("run", "made up", weights, split, ClassReport(reports))


def found_run(labels, audits, **facts):
    """A run whose audits are {weights: [reports]}."""
    told = [audited(reports, weights) for weights, reports in audits.items()]
    return FoundRun(labels, ReportRun("run", "made up", told), **facts)


def found(*runs, scale="smoke", **facts):
    return Found(STUDY, scale, tuple(runs), **facts)


def seeds(labels, conditions=("clean", "pgd-20"), count=2, first=0, classes=3):
    """Runs of one setting, and their confusion tables by seed and condition."""
    runs, tables = [], {}
    for seed in range(count):
        for number, condition in enumerate(conditions):
            tables[seed, condition] = confusion(1000 * first + 10 * seed + number, classes)
        reports = [report(c, tables[seed, c]) for c in conditions]
        runs.append(found_run({**labels, "seed": str(seed)}, {"last": reports}))
    return runs, tables


def accuracies(table):
    """Of each class, in plain loops."""
    return [int(row[k]) / sum(int(n) for n in row) for k, row in enumerate(table)]


def column(artefact, head):
    """The cells of one column, by what their rows are called."""
    place = artefact.head.index(head)
    return {row[0].words: row[place] for row in artefact.rows}
