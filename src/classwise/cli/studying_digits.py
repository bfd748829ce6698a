"""The studies of recipes on embedded digits, with tables of their own: docs/results.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from classwise.cli.app import out
from classwise.errors import ClasswiseError

if TYPE_CHECKING:
    from classwise.studies.grid import Job

DIGITS = {
    "digits": "every family of methods on the embedded digits, over seeds",
    "digits-defaults": "six of these recipes again, with one default changed at a time",
}
SEEDS = 5


def jobs_of_tables(
    name: str, seeds: int, where: Path, also: list[str] | None = None
) -> dict[str, list[Job]]:
    """The runs of a study, those of each variation by its title."""
    from classwise.studies import digits

    if name == "digits":
        return {"": digits.study_jobs(seeds, where, also or ())}
    if also:
        raise ClasswiseError(f"--also {also[0]}: more recipes can stand in the study digits only")
    return {one.title: one.jobs(seeds, where) for one in digits.VARIATIONS}


def make_tables(
    name: str,
    seeds: int,
    also: list[str],
    workers: int,
    folder: Path | None,
    table: Path | None,
    wait: bool,
) -> None:
    """The tables of docs/results.md."""
    from classwise.files import write_atomically
    from classwise.locks import FolderLock
    from classwise.report.runs import load_runs
    from classwise.studies import digits, grid
    from classwise.training.loop import IN_USE

    if seeds < 2:
        raise ClasswiseError(f"--seeds {seeds}: a table over seeds needs at least 2")
    where = folder or digits.default_folder()
    jobs = jobs_of_tables(name, seeds, where, also)
    every = [job for some in jobs.values() for job in some]
    to = table or where / f"{name}.md"
    with FolderLock(where, "a study", wait=wait, remedy=IN_USE) as lock:
        grid.run_grid(every, workers=workers, console=out)
        found = {title: load_runs([job.path for job in some]) for title, some in jobs.items()}
        if name == "digits":
            text = digits.markdown(found[""], seeds)
        else:
            text = digits.variations_markdown(found, seeds)
        lock.check()
        write_atomically(to, text.encode())
    out.print(text, highlight=False)
    out.print(f"Wrote {to}", soft_wrap=True)
