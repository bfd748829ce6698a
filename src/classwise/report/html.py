"""One self-contained page that opens from disk without a network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from classwise.errors import ClasswiseError
from classwise.files import write_atomically
from classwise.judging.audits import AuditedWeights
from classwise.judging.universal import Agreement
from classwise.record.description import made_with
from classwise.report.agreement import page_agreement
from classwise.report.brackets import HEADS, page_brackets
from classwise.report.classes import judged_again
from classwise.report.corruptions import GROUPS as CORRUPTION_GROUPS
from classwise.report.corruptions import HEADS as CORRUPTION_HEADS
from classwise.report.corruptions import apart as set_apart
from classwise.report.offline import offline_page
from classwise.report.payload import page_data, superclass_names
from classwise.report.runs import ReportRun, load_runs
from classwise.report.seeds import seed_rows
from classwise.report.summary import (
    MEASURES,
    SummaryRow,
    attack_words,
    captions,
    cell,
    percent,
    remarks,
    shown,
    summary_rows,
    worst_class_warning,
    worst_span,
)
from classwise.spelling import few_names, spell_eps
from classwise.statistics.intervals import wilson

__all__ = ["ReportRun", "load_runs", "write_report"]


def write_report(
    runs: Sequence[ReportRun], out: Path, agreement: Sequence[Agreement] = (), apart: str = ""
) -> None:
    """Write the page for these runs; they must be of the same classes.

    `agreement` between them is a section of its own; `apart` says why there is none.
    """
    audits = [audit for run in runs for audit in run.audits]
    if not audits:
        raise ClasswiseError("nothing to report: none of these runs has an audit")
    _check_same_classes(audits)
    write_atomically(out, _render(runs, audits, agreement, apart).encode())


def _render(
    runs: Sequence[ReportRun],
    audits: Sequence[AuditedWeights],
    agreement: Sequence[Agreement],
    apart: str,
) -> str:
    audits, corrupted = set_apart(audits)
    rows = summary_rows(audits)
    report = next(iter(audits[0].report.values()))
    return offline_page(
        "report.html",
        data={**page_data(rows, runs), "agreement": page_agreement(agreement)},
        apart=apart,
        rows=rows,
        groups=shown(rows),
        measures=MEASURES,
        cell=cell,
        few_names=few_names,
        worst_span=worst_span,
        classes=_class_rows(rows),
        superclasses=superclass_names(report),
        superclass_of=report.superclass_of,
        facts=_facts(runs, audits),
        captions=captions(audits),
        noise=_noise(audits),
        brackets=page_brackets(audits),
        bracket_heads=HEADS,
        warning=worst_class_warning(rows),
        remarks=remarks(audits),
        runs=[_run_facts(run) for run in runs],
        seeds=seed_rows(runs),
        corrupted=corrupted,
        again=_again(audits),
        corruption_heads=CORRUPTION_HEADS,
        corruption_groups=CORRUPTION_GROUPS,
    )


def _again(audits: Sequence[AuditedWeights]) -> dict[str, Any]:
    """What more than one true label makes of the same answers; no rows where there are none."""
    again = judged_again(audits)
    rows = summary_rows(again)
    return {
        "rows": rows,
        "groups": shown(rows),
        "heads": ("Class", "Samples", *(row.label for row in rows)),
        "classes": [
            (one["name"], one["samples"], *one["rates"])
            for one in (_class_rows(rows) if rows else ())
        ],
        "notes": list(dict.fromkeys(audit.report.about["note"] for audit in again)),
    }


def _check_same_classes(audits: Sequence[AuditedWeights]) -> None:
    first = audits[0]
    for audit in audits:
        if audit.report.class_names != first.report.class_names:
            raise ClasswiseError(
                f"{audit.run} and {first.run} have different classes; write one report for each"
            )


def _class_rows(rows: Sequence[SummaryRow]) -> list[dict[str, Any]]:
    """Each class with its samples and its rate in every row; robust where there is an attack."""
    reports = [row.robust or row.clean for row in rows]
    first = reports[0]
    assert first is not None
    columns = [list(report.by_class.values()) for report in reports if report]
    sizes = first.counts.sizes.tolist()
    return [
        {"name": name, "samples": size, "rates": [percent(rate) for rate in rates]}
        for name, size, *rates in zip(first.class_names, sizes, *columns, strict=True)
    ]


def _facts(runs: Sequence[ReportRun], audits: Sequence[AuditedWeights]) -> list[tuple[str, str]]:
    """What the header says, in words."""
    rows = summary_rows(audits)
    attacked = [row for row in rows if row.attack]
    sizes = next(iter(audits[0].report.values())).counts.sizes
    low, high = int(sizes.min()), int(sizes.max())
    names = audits[0].report.class_names
    facts = [
        ("Data", _distinct(run.about.get("data", {}).get("name", "") for run in runs)),
        ("Classes", f"{len(names)}"),
        ("Split", _distinct(audit.split for audit in audits)),
        ("Samples per class", f"{low}" if low == high else f"{low} to {high}"),
        ("Attack", "; ".join(dict.fromkeys(map(attack_words, attacked))) or "none"),
    ]
    return [(name, value) for name, value in facts if value]


def _noise(audits: Sequence[AuditedWeights]) -> str:
    """How far chance alone moves a class, for the smallest class there is."""
    sizes = [s for a in audits for r in a.report.values() for s in r.counts.sizes.tolist() if s]
    n = min(sizes)
    low, high = wilson(n / 2, n)
    return (
        f"The smallest class has {n} sample{'s' if n > 1 else ''}: "
        f"a rate of 50 % counted there has a 95 % interval from {100 * float(low):.0f} to "
        f"{100 * float(high):.0f} %."
    )


def _run_facts(run: ReportRun) -> dict[str, str]:
    """One line of the table of runs."""
    config = run.about.get("config", {})
    return {
        "run": run.name,
        "recipe": run.recipe,
        "data": str(run.about.get("data", {}).get("name", "")),
        "network": str(config.get("model", "")),
        "epochs": f"{len(run.history)} of {config['epochs']}" if "epochs" in config else "",
        "training eps": _eps_words(config.get("eps")),
        "validation eps": _validation_eps(config),
        "seed": str(config.get("seed", "")),
        "identity": str(run.about.get("identity", "")),
        "made with": made_with(run.about),
    }


def _validation_eps(config: dict[str, Any]) -> str:
    judged = config.get("judge_eps")
    return _eps_words(config.get("eps") if judged is None else judged)


def _eps_words(eps: Any) -> str:
    """A radius in words; nothing where a card has none, or something else in its place."""
    return spell_eps(eps) if type(eps) in (int, float) else ""


def _distinct(values: Any) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value))
