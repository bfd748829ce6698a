"""What can be asked of folders with audits, without a model: compare, judge, show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from classwise.doors.universality import agree
from classwise.errors import ClasswiseError
from classwise.files import given_path, write_atomically
from classwise.judging.audits import AuditedWeights
from classwise.judging.compare import Difference
from classwise.judging.gate import GateReport
from classwise.judging.gate import gate as hold_against
from classwise.judging.groups import CLASS
from classwise.judging.samples import diff_samples, read_samples
from classwise.judging.universal import Agreement
from classwise.report import agreement, tables
from classwise.report.corruptions import csv_corruptions
from classwise.report.html import write_report
from classwise.report.runs import ReportRun, load_runs

_TABLES = {
    ".md": tables.markdown_table,
    ".csv": tables.csv_table,
    ".json": tables.json_text,
    ".tex": tables.latex_table,
}

_AGREEMENT = {
    ".md": agreement.markdown_agreement,
    ".csv": agreement.csv_agreement,
    ".json": agreement.json_agreement,
}


def diff(
    before: str | Path,
    after: str | Path,
    *,
    attacks: str | Sequence[Any] = (),
    weights: str | tuple[str, str] = "",
    split: str = "",
    grouping: str = CLASS,
) -> list[Difference]:
    """Compare two audited runs on the same images, one `Difference` per condition.

    `attacks` are names, attack objects of classwise or parsed conditions. `weights` are those of
    both, or one name for each. `grouping` may be one that either run keeps.
    """
    first, second = (weights, weights) if isinstance(weights, str) else weights
    return diff_samples(
        read_samples(Path(before), weights=first, split=split),
        read_samples(Path(after), weights=second, split=split),
        attacks=attacks,
        grouping=grouping,
    )


def gate(
    contract: str | Path,
    run: str | Path,
    baseline: str | Path | None = None,
    *,
    strict: bool = False,
) -> GateReport:
    """Hold an audited run against a contract, and, if it says so, against a baseline.

    With `strict` a rule that the data leave undecided closes the gate, too.
    """
    before = None if baseline is None else Path(baseline)
    return hold_against(Path(contract), Path(run), before, strict=strict)


def report(
    runs: Sequence[str | Path] | str | Path, out: str | Path = "report.html"
) -> list[ReportRun]:
    """Write the audits of runs in the format that the file's ending asks for.

    Groups and corruptions stand in files of their own beside the classes: one file, one table.
    """
    to, many = Path(out), [runs] if isinstance(runs, str | Path) else runs
    check_report(to)
    loaded = load_runs([Path(run) for run in many])
    if to.suffix not in _TABLES:
        write_report(loaded, to, *_agreement(many))
        return loaded
    audits = [entry for run in loaded for entry in run.audits]
    write_atomically(to, _TABLES[to.suffix](audits).encode())
    for kind, table in files_beside(to, audits).items():
        write_atomically(kind, table.encode())
    return loaded


def check_report(to: Path) -> None:
    """Refuse what no report can be written as."""
    if to.suffix not in (*_TABLES, ".html", ".htm"):
        raise ClasswiseError(f"cannot write {to.name}; end it in .html, .md, .csv, .json or .tex")
    if given_path(to).is_dir():
        raise ClasswiseError(f"cannot write {to}: it is a folder; name a file")


def write_agreement(
    runs: Sequence[str | Path], found: Sequence[Agreement], out: str | Path
) -> list[Path]:
    """Write how far runs agree, in the format of the file's ending; all files that were written.

    A page has the rest of the report, too; beside a `.csv` of pairs stands one of classes.
    """
    to = Path(out)
    if to.suffix in (".html", ".htm"):
        write_report(load_runs([Path(run) for run in dict.fromkeys(runs)]), to, found)
    elif to.suffix in _AGREEMENT:
        write_atomically(to, _AGREEMENT[to.suffix](found).encode())
    else:
        raise ClasswiseError(f"cannot write {to.name}; end it in .html, .md, .csv or .json")
    if to.suffix != ".csv":
        return [to]
    classes = to.with_suffix(".classes.csv")
    write_atomically(classes, agreement.csv_class_ranks(found).encode())
    return [to, classes]


def _agreement(runs: Sequence[str | Path]) -> tuple[list[Agreement], str]:
    """How far several runs agree on the classes, or why that cannot be said."""
    if len(runs) < 2:
        return [], ""
    try:
        return agree(runs), ""
    except ClasswiseError as reason:
        return [], f"Not compared: {reason}."


def files_beside(to: Path, audits: Sequence[AuditedWeights]) -> dict[Path, str]:
    """Tables of groups, corruptions and other labels that go with a CSV, where there are any."""
    if to.suffix != ".csv":
        return {}
    again = [
        replace(audit, report=audit.report.relabelled)
        for audit in audits
        if audit.report.relabelled is not None
    ]
    found = {
        to.with_suffix(".groups.csv"): tables.csv_groups(audits),
        to.with_suffix(".corruptions.csv"): csv_corruptions(audits),
        to.with_suffix(".real.csv"): tables.csv_table(again) if again else "",
    }
    return {path: table for path, table in found.items() if table}
