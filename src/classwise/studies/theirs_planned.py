"""Networks of other people beside the runs of one study: on which images, by which audits.

They are audited on the data that the study's file names, whatever a scale puts in their place:
they were made for those, and not for images of fewer pixels. At scale smoke all images are made up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from classwise.attacks.threat import Threat
from classwise.data.sources import open_data, read_spec
from classwise.errors import ClasswiseError
from classwise.record.tensors import written_here
from classwise.sealed import Damaged, read_sealed
from classwise.spelling import few_names
from classwise.studies.artefacts import KINDS
from classwise.studies.audit_jobs import AuditJob, NetworkJob
from classwise.studies.planned import PlannedRun
from classwise.studies.runs_folder import is_audited
from classwise.studies.study import Audit, Study, load_study, study_names
from classwise.studies.theirs import NOT_OURS, THEIRS, Network, network_key

GIVEN = "given"  # what an audit calls the one set of weights in a file
_KEPT = {"name", "file", "which", "sha256", "arch", "normalised", "data"}  # words, all of them


@dataclass(frozen=True)
class Stand:
    """What networks beside the runs of a study are audited on and by, and where they stand."""

    data: str
    eps: float
    norm: str
    audits: tuple[Audit, ...]
    labels: Mapping[str, str]  # of the study's runs, where they all have the same

    def labels_of(self, about: Mapping[str, Any]) -> dict[str, str]:
        """Where a network stands on the axes; its name says that it is none of ours."""
        name = f"{about['name']} ({NOT_OURS})"
        model = str(about["arch"] or about["file"])
        own = {"recipe": name, "model": model, "seed": "0"}
        row = {"row": name} if "row" in self.labels else {}
        return {**self.labels, **row, **own}


@dataclass(frozen=True)
class PlannedNetwork:
    """One network: its file, what is kept of it, and its audits."""

    network: Network
    about: Mapping[str, Any]
    stand: Stand

    @property
    def key(self) -> str:
        """What it is known by."""
        return network_key(self.about)

    @property
    def audits(self) -> tuple[Audit, ...]:
        """The study's, on at most as many images as were asked for."""
        most = self.network.limit
        return tuple(
            _limited(audit, min(audit.limit or most, most or audit.limit))
            for audit in self.stand.audits
        )

    def job(self, folder: Path) -> NetworkJob:
        """What a process needs to audit it, in a folder of runs."""
        audits = tuple(
            AuditJob(",".join(one.attacks), limit=one.limit, split=one.split) for one in self.audits
        )
        stand, path = self.stand, folder / f"theirs-{self.key}"
        return NetworkJob(self.network, self.about, stand.eps, stand.norm, audits, path)

    def is_done(self, folder: Path) -> bool:
        """Whether all of its audits are there, under the name that it has now."""
        job, threat = self.job(folder), Threat.of(self.stand.eps, self.stand.norm)
        try:
            named = read_about(job.path / THEIRS) == job.about
            return named and all(is_audited(job.path, threat, a, (GIVEN,)) for a in self.audits)
        except ClasswiseError:  # damaged: the audit that is repeated will mend it, or say so
            return False


def _limited(audit: Audit, limit: int) -> Audit:
    """The same audit of so many images."""
    return audit.model_copy(update={"limit": limit})


def stand_of(study: Study, runs: Sequence[PlannedRun]) -> Stand:
    """Where networks of others can stand beside a study's runs, or why they cannot."""
    if not _shows(study):
        kinds = [name for name, kind in KINDS.items() if kind.shows_theirs]
        able = [name for name in study_names() if _shows(load_study(name))]
        raise ClasswiseError(
            f"no artefact of study {study.name} shows networks of others (--beside); those of kind "
            f"{few_names(kinds, 9)} do, as in {few_names(able, 9)}; leave out --beside"
        )
    there = [run for run in runs if not run.lacking]
    sites = {(_data(run), run.config.eps_of_judge, run.config.norm) for run in there}
    if len(sites) != 1:
        which = ", ".join(sorted({f"{data} at eps {eps:g}" for data, eps, _ in sites})) or "nothing"
        raise ClasswiseError(
            f"study {study.name} is on {which}; networks of others (--beside) stand beside runs on "
            "one data set at one radius"
        )
    ((data, eps, norm),) = sites
    every = [set(run.labels.items()) for run in there]
    shared = {k: v for k, v in there[0].labels.items() if all((k, v) in one for one in every)}
    rows = {"row": ""} if any("row" in run.labels for run in there) else {}
    audits: dict[Audit, None] = {}
    for run in there:
        for audit in run.audits:
            plain = {"weights": (GIVEN,), "seeds": 0, "similarity": False}
            audits[audit.model_copy(update=plain)] = None
    return Stand(data, eps, norm, tuple(audits), {**rows, **shared})


def _shows(study: Study) -> bool:
    return any(KINDS[one.kind].shows_theirs for one in study.artefacts)


def _data(run: PlannedRun) -> str:
    made_up = read_spec(run.config.data)[0] == "madeup"
    return run.config.data if made_up else run.labels["data"]


def plan_networks(words: Sequence[str], stand: Stand) -> tuple[PlannedNetwork, ...]:
    """Read and open every network once; what is wrong with one is told here."""
    networks = [Network.read(one) for one in words]
    names = [one.name for one in networks]
    for name in names:
        if names.count(name) > 1:
            raise ClasswiseError(f"--beside {name} is given twice; give each its own name")
    source = open_data(stand.data)
    found: dict[str, PlannedNetwork] = {}
    for one in networks:
        if written_here(one.path):
            raise ClasswiseError(
                f"--beside {one.name}: {one.path.name} was written by classwise, and --beside is "
                "for networks of other people; name its recipe in a study file of your own"
            )
        normalised = one.check(source.test.num_classes, source.test.channels)
        planned = PlannedNetwork(one, one.about(one.sha256, stand.data, normalised), stand)
        if planned.key in found:
            first = found[planned.key].network.name
            raise ClasswiseError(f"--beside {one.name} is the same network as {first}; give one")
        found[planned.key] = planned
    return tuple(found.values())


def networks_in(folder: Path, stand: Stand) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The networks of a folder of runs or records that were audited on these data."""
    for path in sorted(folder.glob(f"[!.]*/{THEIRS}")):
        about = read_about(path)
        if about and about["data"] == stand.data:
            yield path.parent, about


def read_about(path: Path) -> dict[str, Any]:
    """What is kept of a network; nothing where there is none, or something else."""
    if not path.exists():
        return {}
    try:
        about = read_sealed(path, "delete it")
    except Damaged:
        return {}
    told = {"normalise", *_KEPT} <= about.keys()
    words = told and all(isinstance(about[name], str) for name in _KEPT)
    renamed = about.get("rename")
    parts = isinstance(renamed, list) and all(isinstance(one, str) for one in renamed)
    return about if words and parts else {}
