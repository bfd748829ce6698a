"""Records of trainings that nobody ran: histories, looks and audits of chosen numbers."""

from dataclasses import dataclass

import numpy as np
import torch

from classwise.classes.counts import ClassCounts
from classwise.judging.audits import AuditedWeights
from classwise.judging.metrics import ClassReport, ConditionReport
from classwise.report.runs import ReportRun
from classwise.studies.found import Found, FoundRun

NAMES = ("ant", "bee", "cat", "dog")


@dataclass(frozen=True)
class Facts:
    """What an artefact asks of its study."""

    title: str = "made up"
    paper: str = "wei"
    source: str = "figure 0"


def rates(by_class, overall=None):
    """As `ClassCounts.rates` has it; without an overall, the mean over classes."""
    known = [rate for rate in by_class if rate is not None]
    mean = float(np.mean(known)) if known else float("nan")
    return {"overall": mean if overall is None else overall, "by_class": list(by_class)}


def history(looks, epochs=None, settings=None):
    """Lines of a history; looks are `test:pgd-10@ema` -> rows of class rates, one per epoch."""
    count = epochs or max(len(rows) for rows in [*looks.values(), *(settings or {}).values()])
    lines = []
    for epoch in range(1, count + 1):
        line = {"epoch": epoch, "train": {}, "valid": {"live": {}}, "settings": {}, "watch": {}}
        for name, rows in looks.items():
            row = rows.get(epoch) if isinstance(rows, dict) else rows[epoch - 1]
            if row is None:
                continue
            found = row if isinstance(row, dict) else rates(row)
            split, _, rest = name.partition(":")
            attack, _, average = rest.partition("@")
            if split == "valid":
                line["valid"].setdefault(average or "live", {})[attack] = found
            elif split == "training":
                line["train"][attack] = found
            else:
                line["watch"][name] = found
        for name, rows in (settings or {}).items():
            line["settings"][name] = rows[epoch - 1]
        lines.append(line)
    return lines


def condition(name, hits, sizes=100, names=NAMES, *, confusion=None, **more):
    """A report under one condition; what is wrong is called the next class."""
    if confusion is None:
        sizes = np.broadcast_to(sizes, len(hits))
        confusion = np.zeros((len(hits), len(hits)), np.int64)
        for k, (hit, size) in enumerate(zip(hits, sizes, strict=True)):
            confusion[k, k], confusion[k, (k + 1) % len(hits)] = hit, size - hit
    counts = ClassCounts(torch.as_tensor(np.asarray(confusion), dtype=torch.int64))
    more = {"eps": 0.0 if name == "clean" else 8 / 255, "norm": "Linf", "verdict": "last"} | more
    return ConditionReport(name, counts, tuple(names), **more)


def record(lines=(), *conditions, names=NAMES, recipe=None, weights="last", **config):
    """The record of one run; `recipe` is what run.json says of the methods' options."""
    about = {
        "recipe": recipe or {},
        "recipe_name": "+".join(recipe or {"at": {}}),
        "config": {"eps": 8 / 255, "epochs": len(lines) or 1, "valid_attack": "pgd-10", **config},
        "data": {"name": "made up", "class_names": list(names)},
    }
    audits = []
    if conditions:
        report = ClassReport(conditions, {"eps": "8/255", "norm": "Linf", "verdict": "last"})
        audits.append(AuditedWeights("run", about["recipe_name"], weights, "test", report))
    return ReportRun("run", about["recipe_name"], audits, list(lines), about)


def found_runs(*pairs, scale="smoke"):
    """A study whose runs are (labels, record), or (labels, why not)."""
    runs = [
        FoundRun(labels, None, why=one) if isinstance(one, str) else FoundRun(labels, one)
        for labels, one in pairs
    ]
    return Found(Facts(), scale, tuple(runs))


def row(artefact, *first):
    """The one row that begins with these words."""
    (only,) = [
        one for one in artefact.rows if tuple(cell.words for cell in one[: len(first)]) == first
    ]
    return only


def column(artefact, name, *first):
    """One cell by the words its row begins with and the name of its column."""
    return row(artefact, *first)[artefact.head.index(name)]
