"""What a study has found so far: its planned runs beside what is in a folder, read or a hole."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from classwise.attacks.condition import Condition
from classwise.attacks.names import parse_conditions
from classwise.attacks.threat import Threat
from classwise.errors import ClasswiseError
from classwise.judging.metrics import ClassReport
from classwise.report.runs import ReportRun, load_runs
from classwise.spelling import conditions_meant
from classwise.studies.class_means import FoundRunWithMeans, means_in
from classwise.studies.found import NOT_RUN, Found, FoundNetwork, FoundRun
from classwise.studies.grid import weights_meant
from classwise.studies.planned import PlannedRun
from classwise.studies.runs_folder import RunsFolder
from classwise.studies.scale import Scale, scale_of
from classwise.studies.study import Audit, Study
from classwise.studies.theirs import network_key
from classwise.studies.theirs_planned import Stand, networks_in


@dataclass(frozen=True)
class Reader:
    """Reads runs of a folder, each once, for as many studies as share it."""

    kept: RunsFolder
    _read: dict[Path, ReportRun | str] = field(default_factory=dict, repr=False)

    def found(self, study: Study, scale_name: str, runs: Sequence[PlannedRun]) -> Found:
        """What artefacts of the study read."""
        scale = scale_of(study, scale_name)
        return Found(
            study,
            scale_name,
            tuple(self._run(planned, scale) for planned in runs),
            scale.words,
        )

    def beside(self, found: Found, stand: Stand) -> Found:
        """The same with the networks of other people in the folder that can stand beside it.

        One whose classes are not those of the study's runs is a hole that says so.
        """
        ours = (one.run for one in found.runs if one.run is not None)
        names = next((run.about["data"]["class_names"] for run in ours), None)
        attacks = next((one.stand_ins for one in found.runs), {})
        theirs = []
        for path, about in networks_in(self.kept.folder, stand):
            run = self._network(path, about, stand)
            if not isinstance(run, str) and run.about["data"]["class_names"] != (
                names or run.about["data"]["class_names"]
            ):
                run = "its classes are not those of the study's runs"
            whole, why = (None, run) if isinstance(run, str) else (run, "")
            theirs.append(FoundNetwork(stand.labels_of(about), whole, why, attacks, about))
        return replace(found, theirs=tuple(theirs))

    def _network(self, path: Path, about: Mapping[str, Any], stand: Stand) -> ReportRun | str:
        """The audits of a network, or why there are none."""
        why = self.kept.failure(network_key(about))
        if why:
            return f"failed: {why}"
        try:
            (run,) = load_runs([path])
        except ClasswiseError:
            return NOT_RUN
        name = str(about["name"])  # its run.json has the path of the file
        audits = [replace(one, run=name, recipe=name) for one in run.audits]
        threat = Threat.of(stand.eps, stand.norm)
        return _asked(replace(run, audits=audits), threat, stand.audits)

    def _run(self, planned: PlannedRun, scale: Scale) -> FoundRun:
        run = self._record(planned)
        if isinstance(run, str):
            return FoundRun(planned.labels, None, run, scale.attacks)
        threat = Threat.of(planned.config.eps_of_judge, planned.config.norm)
        found = _asked(run, threat, planned.audits)
        means = means_in(run.folder) if run.folder is not None else ()
        return FoundRunWithMeans(planned.labels, found, "", scale.attacks, means)

    def _record(self, planned: PlannedRun) -> ReportRun | str:
        """A run that is trained and audited, or why there is none."""
        if planned.lacking:
            return planned.lacking
        there = self.kept.covering(planned)
        why = self.kept.failure(planned.key)
        if there is None:
            return f"failed: {why}" if why else NOT_RUN
        if there.finished < there.epochs:
            words = f"{there.finished} of {there.epochs} epochs so far"
            return f"failed: {why}" if why else f"{NOT_RUN}: {words}"
        if there.path not in self._read:
            try:
                (self._read[there.path],) = load_runs([there.path])
            except ClasswiseError as reason:
                self._read[there.path] = f"failed: {why}" if why else f"cannot be read: {reason}"
        return self._read[there.path]


def _asked(run: ReportRun, threat: Threat, asked: Sequence[Audit]) -> ReportRun:
    """The run with those of its audits that the study asked for; others may be other studies'."""
    there = sorted({audited.weights for audited in run.audits})
    wanted: dict[tuple[str, str], dict[str, Condition]] = {}
    for audited in run.audits:
        for audit in asked:
            meant = weights_meant(there, audit.weights)
            if audited.weights in meant and audited.split == audit.split:
                text = ",".join(audit.attacks)
                named = {one.name: one for one in parse_conditions(text, threat, own=False)}
                wanted.setdefault((audited.weights, audited.split), {}).update(named)
    audits = []
    for audited in run.audits:
        conditions = wanted.get((audited.weights, audited.split), {})
        report = _only(audited.report, conditions)
        if len(report):
            audits.append(replace(audited, report=report))
    return replace(run, audits=audits)


def _only(report: ClassReport, conditions: Mapping[str, Condition]) -> ClassReport:
    """The conditions of these names and radii, under their plain names."""
    found = {}
    for name, condition in conditions.items():
        radius = 0.0 if condition.threat is None else condition.threat.widest
        for label in conditions_meant(name, report):
            if math.isclose(report[label].eps or 0.0, radius, rel_tol=1e-9):
                found[name] = replace(report[label], condition=name)
    chosen = ClassReport(list(found.values()), report.about)
    if report.relabelled is not None:
        chosen.relabelled = _only(report.relabelled, conditions)
    return chosen
