"""The command that writes a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from classwise.cli.app import app, kindly, out
from classwise.cli.printing import say_remarks, write_page


@app.command()
@kindly
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders that have been audited.")],
    to: Annotated[
        Path, typer.Option("--out", help="The file: .html, .md, .csv, .json or .tex.")
    ] = Path("report.html"),
) -> None:
    """Write one offline page (or Markdown, CSV, JSON or LaTeX) over audited runs.

    CSV has a row for every class and condition; Markdown and LaTeX have averages and classes.

    Example: classwise report runs/a runs/b --out report.html
    """
    from classwise.report.tables import rich_table

    audits = [entry for run in write_page(runs, to) for entry in run.audits]
    out.print(rich_table(audits))
    say_remarks(audits)
    out.print(f"Wrote {to}", soft_wrap=True)
