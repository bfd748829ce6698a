"""What every door does with verdicts: a report, flags, and remarks that are kept beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from classwise.auditing.flags import Flag, check_records, steady_flags
from classwise.auditing.plan import Plan
from classwise.auditing.sequential import PartialAudit
from classwise.judging.group_files import groupings_in, keep_groupings
from classwise.judging.groups import Grouping
from classwise.judging.metrics import ClassReport
from classwise.judging.reports import class_report
from classwise.judging.truth import ManyLabels, relabelled, truths_in
from classwise.record.record import Record
from classwise.record.rows import Predictions


def findings(
    plan: Plan,
    found: Sequence[Predictions],
    record: Record | None,
    groupings: Mapping[str, Grouping],
    truth: ManyLabels | None = None,
    *,
    looks: Sequence[Flag] = (),
    partly: PartialAudit | None = None,
    probed: Sequence[Flag] | None = None,
) -> ClassReport:
    """The report on an audit; what a reader must know is in its `about`, and kept in the record.

    `looks` are the flags of a first look, `probed` those of a health check, if there was one.
    Verdicts are compared with all that were kept before, not only with those of this audit.
    """
    names, note = plan.data.class_names, None if partly is None else partly.words
    if record is not None:
        keep_groupings(record.folder, record.stamp.data_hash, groupings)
        groupings = groupings_in(record.folder).get(record.stamp.data_hash, {})
        truth = _kept_truth(record, truth)
    unfinished = "" if partly is None or partly.whole else partly.words
    report = class_report(found, plan.data, groupings, unfinished)
    seen = [*looks, *steady_flags(plan.subject, plan.data)]
    if record is None:
        seen += check_records(found, names)
    else:
        seen += check_records(record.everything(), names)
        record.remark(
            record.notes(plan.asked, len(plan.data.labels), note),
            [str(flag) for flag in seen],
            None if probed is None else [str(flag) for flag in probed],
        )
    met = {flag.name for flag in probed or ()}  # of a flag that both raised, the probe knows more
    flags = [*(probed or ()), *(flag for flag in seen if flag.name not in met)]
    report.about |= remarks(plan, flags) | ({"note": note} if note else {})
    if truth is not None:
        counts = {one.condition: truth.judged(one, len(names)) for one in found}
        report.relabelled = relabelled(report, counts, truth)
    return report


def _kept_truth(record: Record, truth: ManyLabels | None) -> ManyLabels | None:
    """Keep labels that were given; without any, those of before are taken."""
    data = record.stamp.data_hash
    if truth is None:
        return truths_in(record.folder).get(data)
    truth.keep(record.folder, data)
    return truth


def remarks(plan: Plan, flags: Sequence[Flag]) -> dict[str, Any]:
    """What a reader must know beside the numbers; nothing where there is nothing to say."""
    said = {
        "asked": list(plan.subject.words),
        "flags": [str(flag) for flag in flags],
        "black_box": plan.subject.black_box,
    }
    return {key: value for key, value in said.items() if value}
