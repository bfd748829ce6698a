"""What a report is made of: run folders read back from disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from classwise.errors import ClasswiseError
from classwise.judging.audits import AuditedWeights, read_audits
from classwise.sealed import Damaged
from classwise.training.run import Run


@dataclass(frozen=True)
class ReportRun:
    """One run: its audits, its history with what was watched, and what run.json says."""

    name: str
    recipe: str
    audits: list[AuditedWeights]
    history: list[dict[str, Any]] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None  # where it was read from; single predictions are still there


def load_runs(paths: Sequence[Path]) -> list[ReportRun]:
    """Read run folders; one without an audit is refused with the command that makes one."""
    if not paths:
        raise ClasswiseError("no run given; name at least one run folder")
    twice = [path for path, many in Counter(path.resolve() for path in paths).items() if many > 1]
    if twice:
        raise ClasswiseError(f"{twice[0].name} is named twice; name every run once")
    count = Counter(path.name for path in paths)
    runs = []
    for path in paths:
        name = str(path) if count[path.name] > 1 else path.name
        runs.append(_load(path, name))
    return runs


def _load(path: Path, name: str) -> ReportRun:
    run = Run(path)
    about = run.about
    if "recipe_name" not in about:
        raise ClasswiseError(f"{path}/run.json does not describe a run: it names no recipe")
    audits = read_audits(path, about)
    if not audits:
        raise ClasswiseError(f"{path} has no audit yet; first run: classwise audit {path}")
    audits = [replace(audit, run=name) for audit in audits]
    try:
        watched = {record.pop("epoch"): record for record in run.looks}
        history = [{**record, "watch": watched.get(record["epoch"], {})} for record in run.history]
    except Damaged as reason:  # the audits are whole
        history = []
        for audit in audits:
            flags = audit.report.about.get("flags", [])
            words = f"damaged-history: {reason}; the training curves are left out"
            audit.report.about["flags"] = [*flags, words]
    return ReportRun(name, about["recipe_name"], audits, history, about, path)
