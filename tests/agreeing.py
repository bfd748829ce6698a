"""Audited runs of chosen class accuracies, to be compared with each other."""

import json

import numpy as np
from ledgers import stamp, verdicts

from classwise.record.card import write_card
from classwise.record.ledger import Ledger

NAMES = ["ant", "bee", "cat", "dog", "elk", "fox"]
SPREAD = [0.2, 0.35, 0.5, 0.6, 0.75, 0.9]


def audited_run(
    folder,
    rates=SPREAD,
    *,
    per_class=400,
    seed=0,
    condition="pgd-2",
    data="d1",
    model="",
    samples=None,
    names=NAMES,
    weights="last",
    **config,
):
    """A run folder with one audit; runs of one seed see the same images alike."""
    about = {"name": "made up", "class_names": names[: len(rates)]}
    if not (folder / "run.json").exists():
        write_card(folder, config.pop("recipe", "at"), about)
        card = json.loads((folder / "run.json").read_text())
        del card["checksum"]  # changed by hand
        (folder / "run.json").write_text(json.dumps({**card, "config": config}))
    labels = np.repeat(np.arange(len(rates)), per_class)
    heights = np.random.default_rng(seed).random(len(labels))
    right = heights < np.asarray(rates)[labels]
    predicted = np.where(right, labels, (labels + 1) % len(rates))
    chosen = np.arange(len(labels)) if samples is None else samples
    found = verdicts(chosen, predicted[chosen], labels[chosen], condition)
    ledger = Ledger(folder / "predictions", {"recipe_name": "at", "data": about})
    ledger.append(found, stamp(weights, model=model or folder.name, data=data, attack=condition))
    return folder


def history(folder, rows, watched=()):
    """Write what a training would have: (class rates) of each epoch."""
    rates = [{"overall": 0.5, "by_class": row} for row in rows]
    lines = [
        {
            "epoch": epoch,
            "loss": {},
            "train": {},
            "valid": {"live": {"clean": one, "pgd-10": one}},
        }
        for epoch, one in enumerate(rates, 1)
    ]
    (folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    looks = [{"epoch": e, "test:pgd-2": {"overall": 0.5, "by_class": row}} for e, row in watched]
    (folder / "watch.jsonl").write_text("".join(json.dumps(line) + "\n" for line in looks))
