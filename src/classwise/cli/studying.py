"""The command that runs studies: many runs, and the tables and figures that come of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from classwise.cli.app import NO, Quiet, Wait, app, kindly, out
from classwise.cli.listed_studies import list_studies
from classwise.cli.studying_checked import (
    check_device,
    check_records,
    choose_device,
    networks_beside,
    place_of_digits,
    refuse_idle,
    refuse_urls,
)
from classwise.cli.studying_costs import print_costs
from classwise.cli.studying_digits import DIGITS, SEEDS, make_tables
from classwise.errors import ClasswiseError

if TYPE_CHECKING:
    from classwise.studies.at_url import Home
    from classwise.studies.grid import Executor
    from classwise.studies.making import PlannedStudy, Work
    from classwise.studies.runs_folder import RunsFolder

FOLDER = Path("runs/studies")


@app.command()
@kindly
def study(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Studies, FILE.toml of your own, all, or list to see what there is; effects sets "
            "the papers' claims beside what is there; digits and digits-defaults are tables of "
            "many recipes on embedded images."
        ),
    ],
    scale: Annotated[
        str | None,
        typer.Option(
            help="How much a run takes: smoke (seconds, on made-up images), minutes, hours or "
            "paper (as published). (default: minutes)"
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Runs of each setting, one per seed. (default: the study's, 5 for digits)"
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Run only those of which a label fits, as '*CFA*' or 'data=cifar10,row=*CFA*' "
            "(all its parts fit); may be repeated, and any will do. (default: all)",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Runs at a time; 0 is one per core.", min=0)] = 0,
    on: Annotated[str, typer.Option(help="Where runs are made: local, ray or ray:ADDRESS.")] = (
        "local"
    ),
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda, cuda:1, mps or auto. (default: auto for one run at a time or with "
            "--gpus, else cpu: runs would share the one GPU)"
        ),
    ] = None,
    cpus: Annotated[
        float | None, typer.Option(min=0.1, help="Processors of each task on Ray. (default: 1)")
    ] = None,
    gpus: Annotated[
        float | None, typer.Option(min=0, help="GPUs of each task on Ray. (default: 0)")
    ] = None,
    folder: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="FOLDER|URL",
            help="Where the runs of all studies go; s3://BUCKET/runs and the like, too. (default: "
            "runs/studies)",
        ),
    ] = None,
    pages: Annotated[
        Path | None,
        typer.Option(
            help="Where NAME/index.md is written. (default: --out, or runs/studies for a URL)"
        ),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(
            help="Keep records there, too: runs without weights; what they have is not trained "
            "again. (default: none)"
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Make pages from such records; nothing is trained. (default: none)"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the runs and what they will cost, and end.")
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="HOURS", min=0, help="Refuse what takes longer, before it begins. "
            "(default: none)"
        ),
    ] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE,arch=SPEC",
            help="A network of other people to audit and show beside the runs, as 'Wong2020="
            "wong.pt, arch=preactresnet18-raw, normalise=none, limit=1000'; may be repeated. "
            "(default: none)",
        ),
    ] = None,
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Studies may use the methods of this module. (default: none)",
        ),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(help="One more recipe in study digits, as at+mymodule:My. (default: none)"),
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="Markdown file for the table of digits. (default: in --out)")
    ] = None,
    wait: Wait = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Train and audit the runs of a study and write its tables and figures.

    Runs that are already there are not trained again; interrupt it whenever you like.

    Example: classwise study wei-table1 --scale smoke --out runs/studies
    """
    many = workers or os.cpu_count() or 1
    of_files = {
        "--scale": scale, "--only": only, "--pages": pages, "--records": records,
        "--from": source, "--dry-run": dry_run, "--budget": budget, "--import": imports,
        "--beside": beside, "--on": on != "local", "--quiet": quiet, "--device": device,
        "--cpus": cpus, "--gpus": gpus,
    }  # fmt: skip
    if names == ["list"]:
        return list_studies()
    if any(name in DIGITS for name in names):
        place = place_of_digits(names, folder, of_files)
        many_seeds = SEEDS if seeds is None else seeds
        return make_tables(names[0], many_seeds, also or [], many, place, table, wait)
    refuse_idle({"--also": also, "--table": table, "--wait": wait}, names[0])

    from classwise.studies import making
    from classwise.studies.at_url import Home
    from classwise.studies.finding import Reader
    from classwise.studies.making import ALL, EFFECTS, keep_records, plan_studies, work_of
    from classwise.studies.runs_folder import RunsFolder

    refuse_urls({"--pages": pages, "--records": records, "--from": source})
    idle = ("--scale", "--pages", "--from", "--import", "--quiet")
    running = {name: given for name, given in of_files.items() if name not in idle}
    if source is not None:
        check_records(source, {"--out": folder, **running})
    if seeds is not None and seeds < 1:
        raise ClasswiseError(f"--seeds {seeds}: give at least 1")
    if EFFECTS in names:
        refuse_idle({"another study": len(names) > 1, **running}, EFFECTS)
    planned = plan_studies(
        [ALL] if EFFECTS in names else names,
        scale or "minutes", seeds=seeds, only=only or (), imports=imports or (),
    )  # fmt: skip
    home = Home.of(folder or FOLDER) if source is None else Home(source)
    pages, kept = pages or (FOLDER if home.url else home.folder), RunsFolder.of(home.folder)
    if EFFECTS in names:
        path = making.write_effects(planned, Reader(kept), pages)
        return out.print(f"Wrote {path}", soft_wrap=True, highlight=False)
    failed = 0
    if source is None:
        executor = _executor(on, many, cpus, gpus, device)
        recorded = None if records is None else RunsFolder.of(records)
        work = work_of(planned, kept, imports or (), recorded)
        work = work.beside(networks_beside(beside or [], planned), home.folder)
        if dry_run or budget is not None:
            print_costs(work, many, budget, show=dry_run)
        if dry_run:
            return
        if records is not None:  # of runs that were there before a kill
            keep_records(planned, kept, records, new=True)
        where = choose_device(many, device, gpus)
        failed = _run(work.on(where, home.url), executor, home, quiet, records)
        kept = RunsFolder.of(home.folder)
        if records is not None:
            kept = _recorded(planned, kept, records)
    _write(planned, kept, pages, every=ALL in names)
    if failed:
        out.print(f"{failed} runs failed; the pages say why, repeat this command to try again")
        raise typer.Exit(NO)


def _recorded(planned: list[PlannedStudy], kept: RunsFolder, records: Path) -> RunsFolder:
    """Keep the records of all runs, to which another study may have added audits; read both."""
    from classwise.studies.making import keep_records

    written = keep_records(planned, kept, records)
    out.print(f"Kept records of {len(written)} runs in {records}", soft_wrap=True)
    return kept.and_records(type(kept).of(records))


def _executor(
    on: str, workers: int, cpus: float | None, gpus: float | None, device: str | None
) -> Executor:
    from classwise.errors import unknown
    from classwise.studies.grid import Processes

    kind, colon, address = on.partition(":")
    if kind == "ray":
        from classwise.studies.on_ray import OnRay

        check_device(device, here=False)
        return OnRay(address, workers, cpus=cpus or 1.0, gpus=gpus or 0.0)
    if kind != "local" or colon:
        raise unknown("place to run (--on)", on, ["local", "ray", "ray:ADDRESS"])
    refuse_idle({"--cpus": cpus, "--gpus": gpus}, f"--on {on}")
    check_device(device, here=True)
    return Processes(workers)


def _run(work: Work, executor: Executor, home: Home, quiet: bool, records: Path | None) -> int:
    """Run what is left, keep why runs fail and records of the others; return how many failed."""
    from classwise.studies.grid import Task, run_jobs
    from classwise.studies.making import keep_outcome
    from classwise.studies.runs_folder import RunsFolder

    keys, kept = {job.path: key for key, job in work.jobs.items()}, RunsFolder(home.folder, {})

    def done(job: Task, why: str) -> None:
        kept.note_failure(keys[job.path], why)
        home.settle(job.path.name)
        said = f"failed: {why}" if why else ""
        if records is not None:
            try:
                keep_outcome(job.path, keys[job.path], why, records)
            except ClasswiseError as reason:  # the others go on; at the end it is tried again
                said = said or f"has no record: {reason}"
        if said and not quiet:
            out.print(f"{job.path.name} {said}", highlight=False, soft_wrap=True, markup=False)

    jobs = list(work.jobs.values())
    if not jobs:
        return 0
    return len(run_jobs(jobs, executor, console=out, before=work.done, done=done, quiet=quiet))


def _write(planned: list[PlannedStudy], kept: RunsFolder, pages: Path, *, every: bool) -> None:
    """Write the pages; of all studies those of which something is there, and an index over all."""
    from classwise.studies.finding import Reader
    from classwise.studies.making import is_there, write_index, write_page

    reader = Reader(kept)
    for one in planned:
        if every and not is_there(one, kept):
            continue
        path, found = write_page(one, reader, pages)
        holes = sum(run.run is None for run in found.runs)
        words = f", {holes} of {len(found.runs)} runs missing" if holes else ""
        if holes and holes == len(found.runs):
            words += f": none is in {kept.folder} at scale {one.scale}"
        out.print(f"Wrote {path}{words}", soft_wrap=True, highlight=False)
    if every:
        path = write_index(planned, kept, pages)
        out.print(f"Wrote {path}", soft_wrap=True, highlight=False)
