"""Made-up verdicts and the place they have in a ledger."""

import numpy as np

from classwise.auditing.fingerprint import attack_key
from classwise.auditing.shards import Predictions, Stamp

ABOUT = {"recipe_name": "made up", "data": {"name": "x", "class_names": ["a", "b", "c"]}}


def verdicts(samples, predicted=None, labels=None, condition="pgd-2", **facts):
    samples = np.asarray(samples, np.int64)
    labels = samples % 3 if labels is None else np.asarray(labels, np.int64)
    predicted = labels if predicted is None else np.asarray(predicted, np.int64)
    return Predictions(
        condition,
        samples,
        labels,
        predicted,
        np.where(labels == predicted, 1, -1).astype(np.float32),
        radius=np.full(len(samples), 0.1),
        iterations=np.full(len(samples), 2, np.int32),
        broken_by=np.array([condition, None], dtype=object)[(labels == predicted).astype(int)],
        **facts,
    )


def stamp(weights="last", split="test", model="m1", data="d1", attack="pgd-2", eps=0.1, seed=0):
    key = attack_key(attack, eps, "Linf", seed, "last")
    return Stamp("run", weights, split, model, data, key)
