"""What the counts of a report allow: its verdicts one by one, and whether its classes differ."""

from __future__ import annotations

import numpy as np
from scipy import stats

from classwise.judging.metrics import ConditionReport
from classwise.judging.samples import AuditedSamples
from classwise.record.rows import Predictions, Stamp


def samples_of(name: str, condition: str, report: ConditionReport) -> AuditedSamples:
    """The verdicts of a report one by one, where no file has them image by image.

    Every run therefore has data of its own, and its images are drawn for it alone.
    """
    unanswered = report.counts.sizes.numpy() - report.confusion.sum(1)
    table = np.column_stack([report.confusion, unanswered])
    label, predicted = (
        np.repeat(places.ravel(), table.ravel()) for places in np.indices(table.shape)
    )
    nothing = np.zeros(len(label))
    rows = Predictions(
        *(condition, np.arange(len(label)), label, predicted),
        *(nothing.astype(np.float32), nothing, nothing.astype(np.int64)),
        np.full(len(label), None, object),
        kind=report.kind,
    )
    stamp = Stamp(name, "", "", data_hash=name, attack_key=condition)
    return AuditedSamples(name, "", "", report.class_names, {condition: rows}, {condition: stamp})


def equal_rates_p_value(report: ConditionReport) -> float:
    """Chance that classes of one true rate differ as much (χ² of right and wrong by class)."""
    hits, sizes = (np.asarray(part) for part in report.tally[1:3])
    hits, sizes = hits[sizes > 0], sizes[sizes > 0]
    if len(sizes) < 2 or hits.sum() in (0, sizes.sum()):
        return 1.0  # nobody is right, or everybody: no class differs
    return float(stats.chi2_contingency(np.stack([hits, sizes - hits]), correction=False).pvalue)
