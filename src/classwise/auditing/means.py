"""The mean logits of every class: one pass over the images as they are."""

from __future__ import annotations

import numpy as np
import torch

from classwise.auditing.run import Listener, Nobody
from classwise.data.view import View
from classwise.errors import ClasswiseError
from classwise.models.subject import Subject
from classwise.record.means import ClassMeans


def class_means(
    subject: Subject, data: View, *, weights: str, split: str, listener: Listener | None = None
) -> ClassMeans:
    """m_k = (1/n_k)·Σ over images of class k of the K logits, summed in float64."""
    if not len(data):
        raise ClasswiseError("no images given, so no class has mean logits")
    told, count = listener or Nobody(), subject.num_classes
    told.begin("class means", len(data))
    sums = torch.zeros(count, count, dtype=torch.float64)
    with subject.asked():
        for rows in torch.split(torch.arange(len(data)), subject.width):
            batch = data.batch(rows)
            logits = subject.ask(subject.take(batch.images))
            sums.index_add_(0, batch.labels.cpu(), logits.cpu().double())
            told.advance(len(rows))
    sizes = np.bincount(data.truth, minlength=count).astype(np.int64)
    means = sums.numpy() / np.maximum(sizes, 1)[:, None]
    hashes = subject.identity, data.identity
    return ClassMeans(means, sizes, data.class_names, *hashes, weights, split)
