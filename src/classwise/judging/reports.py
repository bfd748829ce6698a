"""From rows to the report of one audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from classwise.data.view import View
from classwise.judging.groups import Grouping, tallies
from classwise.judging.metrics import ClassReport, ConditionReport, count_predictions
from classwise.judging.smoothed import Drawn
from classwise.record.rows import Predictions
from classwise.record.shard_files import digest


def class_report(
    found: Sequence[Predictions],
    data: View,
    groupings: Mapping[str, Grouping] | None = None,
    unfinished: str = "",
) -> ClassReport:
    """Derive the report from predictions; `unfinished` says what an audit in part lacks."""
    sizes = tuple(data.about()["sizes"])
    conditions = [
        ConditionReport(
            one.condition,
            count_predictions(one.label, one.predicted, len(data.class_names)),
            data.class_names,
            data.superclass_of,
            data.superclass_names,
            kind=one.kind,
            family=one.family,
            strength=one.strength,
            options=one.options,
            split_sizes=sizes,
            eps=float(one.radius.max()),
            groups=tallies(groupings, one.sample, one.label, one.correct),
            norm=one.norm,
            verdict=one.verdict,
            unfinished=unfinished,
            drawn=_drawn(one, len(data.class_names)),
            images_key=digest(np.sort(one.sample).tobytes()),
        )
        for one in found
    ]
    attacked = [one for one in found if one.kind != "clean"] or list(found)
    about = {
        "eps": max(float(one.radius.max()) for one in found),
        "norm": found[-1].norm,
        "seed": found[-1].seed,
        "verdict": ", ".join(dict.fromkeys(one.verdict for one in attacked)),
    }
    return ClassReport(conditions, about)


def _drawn(found: Predictions, num_classes: int) -> Drawn:
    """What the verdicts rest on, and how many images of each class nothing is certified of."""
    if found.certified_radius is None:
        return Drawn(found.sigma, found.alpha)
    none = (found.predicted == num_classes) & (found.certified_radius == 0)
    abstained = np.bincount(found.label[none], minlength=num_classes)
    return Drawn(found.sigma, found.alpha, tuple(abstained.tolist()))
