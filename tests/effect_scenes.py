"""Run folders with made-up verdicts, for effects that are read image by image."""

import numpy as np
from asked import attack_key

from classwise.judging.audits import read_audits
from classwise.record.ledger import Ledger
from classwise.record.rows import Predictions, Stamp
from classwise.report.runs import ReportRun
from classwise.studies.found import FoundRun
from classwise.studies.papers.claims import read_claim

CLASSES = ("airplane", "cat", "dog")
ABOUT = {"recipe_name": "made up", "data": {"name": "x", "class_names": list(CLASSES)}}
COLUMNS = (
    *("id", "paper", "section", "words", "study", "kind", "measure", "condition", "weights"),
    *("left", "right", "value", "sign", "bound", "doubtful"),
)


def claim(**said):
    """A claim about two rows of the study `made-up`, but for what is said."""
    plain = {
        **dict.fromkeys(COLUMNS, ""),
        **{"id": "wei-x", "paper": "wei", "section": "1", "words": "CFA helps"},
        **{"study": "made-up", "kind": "difference", "measure": "average", "condition": "pgd-20"},
        **{"weights": "last", "left": "row=AT + CFA", "right": "row=AT", "sign": "+"},
    }
    return read_claim({**plain, **said})


def right_of(rates, per_class, seed):
    """As many right verdicts of each class as its rate says, on images that chance chose."""
    draw = np.random.default_rng(seed)
    return np.concatenate([draw.permutation(per_class) < rate * per_class for rate in rates])


def write(folder, right, condition="pgd-20", weights="last", eps=8 / 255, model="m", data="d"):
    """Add the verdicts of one network to a folder of predictions."""
    per_class = len(right) // len(CLASSES)
    labels = np.repeat(np.arange(len(CLASSES)), per_class)
    shifted = condition.startswith("corruption:")
    family, _, severity = condition.rpartition("-")
    told = {"kind": "shift", "family": family, "strength": float(severity)} if shifted else {}
    attacked = not (condition == "clean" or shifted)
    found = Predictions(
        condition,
        np.arange(len(right)),
        labels,
        np.where(right, labels, (labels + 1) % len(CLASSES)),
        np.zeros(len(right), np.float32),
        radius=np.full(len(right), eps if attacked else 0.0),
        iterations=np.zeros(len(right), np.int64),
        broken_by=np.full(len(right), None),
        **told,
    )
    key = attack_key(condition, eps if attacked else 0.0, "Linf", 0, "last")
    Ledger(folder, ABOUT).append(found, Stamp("run", weights, "test", model, data, key))


def found_run(folder, labels, **facts):
    """What a study finds of a folder."""
    audits = read_audits(folder, ABOUT)
    return FoundRun(labels, ReportRun(folder.name, "made up", audits, folder=folder), **facts)


def made_run(folder, row, seed, rates, *, per_class=100, conditions=("pgd-20",), **how):
    """One run of a row with these class accuracies under each condition."""
    for number, condition in enumerate(conditions):
        right = right_of(rates, per_class, [seed, number, len(row)])
        write(folder, right, condition, **how)
    return found_run(folder, {"row": row, "recipe": "at", "seed": str(seed)})
