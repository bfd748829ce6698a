"""Ledgers and contracts for tests of the gate."""

import numpy as np
from ledgers import stamp, verdicts

from classwise.judging.gate import gate
from classwise.record.ledger import Ledger

NAMES = ["cat", "dog|x", "<person>"]


def ledger(path, hits, sizes=(100, 100, 100), model="m1", names=NAMES, **facts):
    """A ledger in which class k has its first `hits[k]` images right."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    rank = np.concatenate([np.arange(size) for size in sizes])
    right = rank < np.asarray(hits)[labels]
    told = np.where(right, labels, (labels + 1) % len(sizes))
    about = {"recipe_name": "at", "data": {"class_names": names}}
    found = verdicts(np.arange(len(labels)), predicted=told, labels=labels)
    Ledger(path, about).append(found, stamp(model=model, **facts))
    return path


def decide(contract, path, rule, baseline=None):
    (one,) = gate(contract(f"[[rule]]\nunder = 'pgd-2'\n{rule}\n"), path, baseline).outcomes
    return one
