"""From names of studies to pages: plan, run what is missing, read, make artefacts, write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from classwise.errors import ClasswiseError
from classwise.files import write_atomically
from classwise.locks import short_lock
from classwise.record.description import made_with
from classwise.report.escaping import markdown_text
from classwise.studies.artefact import Artefact
from classwise.studies.artefact_files import markdown, write_artefact
from classwise.studies.artefacts import KINDS
from classwise.studies.choosing import chosen
from classwise.studies.effects import judge_claims
from classwise.studies.effects_page import effects_artefact, effects_page
from classwise.studies.finding import Reader
from classwise.studies.found import NOT_RUN, Found, FoundRun
from classwise.studies.grid import Task
from classwise.studies.planned import PlannedRun, plan
from classwise.studies.records import has_record, keep_record
from classwise.studies.runs_folder import RunsFolder, is_done, job_of, together
from classwise.studies.scale import scale_of
from classwise.studies.study import Study, load_study, study_names
from classwise.studies.theirs import network_key
from classwise.studies.theirs_planned import PlannedNetwork, Stand, networks_in, stand_of

ALL = "all"
EFFECTS = "effects"


@dataclass(frozen=True)
class PlannedStudy:
    """A study with all its runs, and those of them that are wanted now."""

    study: Study
    scale: str
    runs: tuple[PlannedRun, ...]
    wanted: tuple[PlannedRun, ...]

    @property
    def stand(self) -> Stand | None:
        """Where networks of others can stand beside its runs; nothing where they cannot."""
        try:
            return stand_of(self.study, self.runs)
        except ClasswiseError:
            return None


@dataclass(frozen=True)
class Work:
    """What is to be done: jobs by the keys of their runs, and how many runs are there already."""

    jobs: dict[str, Task]
    runs: dict[str, PlannedRun]
    done: int
    networks: tuple[PlannedNetwork, ...] = ()  # of other people, among the jobs

    def on(self, device: str, url: str = "") -> Work:
        """The same on a device, with runs that are kept at a URL."""
        told = {key: replace(job, device=device, home=url) for key, job in self.jobs.items()}
        return replace(self, jobs=told)

    def beside(self, networks: Sequence[PlannedNetwork], folder: Path) -> Work:
        """The same and networks of other people, as far as they are not audited yet."""
        left = tuple(one for one in networks if not one.is_done(folder))
        jobs = {**self.jobs, **{one.key: one.job(folder) for one in left}}
        done = self.done + len(networks) - len(left)
        return replace(self, jobs=jobs, done=done, networks=left)


def plan_studies(
    names: Sequence[str],
    scale: str,
    *,
    seeds: int | None = None,
    only: Sequence[str] = (),
    imports: Sequence[str] = (),
) -> list[PlannedStudy]:
    """Resolve every run and every artefact of some studies; what is wrong is told here."""
    studies = [load_study(name) for name in _every(names)]
    _check_pages([study.name for study in studies])
    found = []
    for study in studies:
        runs = plan(study, scale, seeds=seeds, imports=imports)
        _check_artefacts(study, scale, runs)
        found.append((study, runs))
    if only:
        every = [run for _, runs in found for run in runs]
        wanted = {id(run) for run in chosen(every, only)}
    else:
        wanted = {id(run) for _, runs in found for run in runs}
    return [
        PlannedStudy(study, scale, runs, tuple(run for run in runs if id(run) in wanted))
        for study, runs in found
    ]


def _every(names: Sequence[str]) -> list[str]:
    known = [one for name in names for one in (study_names() if name == ALL else [name])]
    return list(dict.fromkeys(known))


def _check_pages(names: Sequence[str]) -> None:
    """Refuse two studies of one name, as a/mine.toml and b/mine.toml: they would share a page."""
    for name in names:
        if names.count(name) > 1:
            raise ClasswiseError(
                f"two studies are called {name} and would write one page; give one file another "
                "name, or run them one by one with other --pages"
            )


def _check_artefacts(study: Study, scale: str, runs: Sequence[PlannedRun]) -> None:
    """Make every artefact of runs that are not there: what it names must be on the axes."""
    if not runs:
        return
    stand_ins = scale_of(study, scale).attacks
    holes = tuple(FoundRun(run.labels, None, run.lacking or NOT_RUN, stand_ins) for run in runs)
    make_artefacts(Found(study, scale, holes))


def work_of(
    studies: Sequence[PlannedStudy],
    kept: RunsFolder,
    imports: Sequence[str] = (),
    records: RunsFolder | None = None,
) -> Work:
    """The jobs that are left, one for each run however many studies share it.

    A run whose record has all that is asked for is done, too: whoever has the records of others
    goes on where they ended. Seeds of one run stand far apart, so that after a cut every row has
    some; runs on features come after those that make them.
    """
    every = together(run for one in studies for run in one.wanted)
    order = sorted(every.items(), key=lambda pair: (pair[1].config.seed, bool(pair[1].maker)))
    folders = [kept] if records is None else [kept, records]
    left = {key: run for key, run in order if not any(is_done(run, one) for one in folders)}
    jobs: dict[str, Task] = {key: job_of(run, kept, tuple(imports)) for key, run in left.items()}
    return Work(jobs, left, len(every) - len(left))


def make_artefacts(found: Found) -> tuple[Artefact, ...]:
    """The tables and figures of a study, from what was found."""
    made = []
    study = found.study
    assert isinstance(study, Study)
    for options in study.artefacts:
        try:
            made.append(KINDS[options.kind].make(found, options))
        except ClasswiseError as reason:
            raise ClasswiseError(
                f"study {study.name}, artefact {options.title!r}: {reason}"
            ) from None
    return tuple(made)


def write_page(planned: PlannedStudy, reader: Reader, pages: Path) -> tuple[Path, Found]:
    """Write `PAGES/NAME/index.md` with the files of every artefact beside it.

    Of two at once the second reads and writes when the first is done: no page is of both.
    """
    study = planned.study
    folder, sections = pages / study.name, []
    with short_lock(folder, "writing a page"):
        found, stand = reader.found(study, planned.scale, planned.runs), planned.stand
        if stand is not None:
            found = reader.beside(found, stand)
        for artefact in make_artefacts(found):
            files = write_artefact(artefact, planned.scale, folder)
            drawn = any(file.suffix == ".svg" for file in files)
            sections.append(markdown(artefact, picture=drawn, depth=2))
        text = "\n".join([*_head(found, study), *sections, *_provenance(found)])
        write_atomically(folder / "index.md", text.encode())
    return folder / "index.md", found


def is_there(planned: PlannedStudy, kept: RunsFolder) -> bool:
    """Whether some run of a study is there, or it needs none: else its page would be all holes."""
    runs = [run for run in planned.runs if not run.lacking]
    return not planned.runs or any(kept.covering(run) is not None for run in runs)


def write_index(studies: Sequence[PlannedStudy], kept: RunsFolder, pages: Path) -> Path:
    """Write `PAGES/index.md`: every study, how much of it is there, and where its page is."""
    lines = [f"# Studies at scale {studies[0].scale}", ""]
    if (pages / EFFECTS / "index.md").exists():
        lines += [f"[Every claim of the papers beside these runs]({EFFECTS}/index.md)", ""]
    lines += ["| study | of the paper | shows | runs |", "| --- | --- | --- | --- |"]
    for one in studies:
        study, needed = one.study, {run.key: run for run in one.runs if not run.lacking}
        whole = [run for run in needed.values() if _is_whole(run, kept)]
        said = f"{len(whole)} of {len(needed)}" if needed else "none needed"
        reasons = dict.fromkeys(run.lacking for run in one.runs if run.lacking)
        where = ", ".join(word for word in (study.paper, study.source) if word)
        linked = is_there(one, kept)
        name = f"[{study.name}]({study.name}/index.md)" if linked else study.name
        runs = "; ".join([*([said] if needed or not reasons else []), *reasons])
        cells = (markdown_text(where), markdown_text(study.shows), markdown_text(runs))
        lines.append(f"| {' | '.join([name, *cells])} |")
    write_atomically(pages / "index.md", "\n".join([*lines, ""]).encode())
    return pages / "index.md"


def _is_whole(run: PlannedRun, kept: RunsFolder) -> bool:
    there = kept.covering(run)
    return there is not None and there.finished == there.epochs


def write_effects(studies: Sequence[PlannedStudy], reader: Reader, pages: Path) -> Path:
    """Write `PAGES/effects/index.md`: every claim of the papers beside what these studies found."""
    found = {one.study.name: reader.found(one.study, one.scale, one.runs) for one in studies}
    made = {name: make_artefacts(one) for name, one in found.items()}
    judged, folder = judge_claims(found, made), pages / EFFECTS
    table = effects_artefact(judged, found)
    with short_lock(folder, "writing a page"):
        files = write_artefact(table, studies[0].scale, folder)
        picture = next((file.name for file in files if file.suffix == ".svg"), "")
        text = effects_page(judged, found, picture=picture)
        write_atomically(folder / "index.md", text.encode())
    return folder / "index.md"


def keep_outcome(run: Path, key: str, why: str, folder: Path) -> None:
    """Write the record of a run as soon as it is done, or why it failed: a kill loses neither."""
    RunsFolder(folder, {}).note_failure(key, why)
    if not why:
        keep_record(run, folder)


def keep_records(
    studies: Sequence[PlannedStudy], kept: RunsFolder, folder: Path, *, new: bool = False
) -> list[Path]:
    """Write the records of all finished runs of some studies, each once; failures go along.

    `new` writes those alone that have no record yet.
    """
    paths, records = dict[Path, None](), RunsFolder(folder, {})
    for planned in studies:
        for run in planned.runs:
            there = None if run.lacking else kept.covering(run)
            if there is not None and there.finished == there.epochs:
                paths[there.path] = None
            if not run.lacking:
                records.note_failure(run.key, kept.failure(run.key))
        for path, about in networks_in(kept.folder, planned.stand) if planned.stand else ():
            key = network_key(about)
            records.note_failure(key, kept.failure(key))
            if (path / "run.json").exists() and not kept.failure(key):
                paths[path] = None
    wanted = [path for path in paths if not (new and has_record(path, folder))]
    return [keep_record(path, folder) for path in wanted]


def _head(found: Found, study: Study) -> list[str]:
    where = ", ".join(word for word in (study.paper, study.source) if word)
    lines = [f"# {markdown_text(study.title)}", ""]
    if where:
        lines += [f"After {markdown_text(where)}."]
    if study.shows:
        lines += [f"Shows: {markdown_text(study.shows)}."]
    words = f": {markdown_text(found.scale_words)}" if found.scale_words else ""
    scale = f"Scale {found.scale}{words}" if found.runs else "Without runs, the same at every scale"
    again = f"`classwise study {study.name} --scale {found.scale}`"
    return [*lines, f"{scale}. Made by {again}.", ""]


def _provenance(found: Found) -> list[str]:
    """A line for every run: who it is, and what made it."""
    if not found.runs:
        return []
    axes = [axis for axis in found.axes if axis == "seed" or len(found.values(axis)) > 1]
    heads = [*axes, "identity", "made with"]
    lines = ["## Runs", "", f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for one in found.runs:
        cells = [one.labels.get(axis, "") for axis in axes]
        if one.run is None:
            cells += ["–", one.why]
        else:
            cells += [str(one.run.about.get("identity", "")), made_with(one.run.about)]
        lines.append(f"| {' | '.join(markdown_text(cell) for cell in cells)} |")
    if found.theirs:
        lines += ["", "## Networks of others", ""]
        told = [f"{one.labels['recipe']}: {one.words}" for one in found.theirs]
        lines += [f"* {markdown_text(words)}" for words in told]
    return [*lines, ""]
