"""Commands that compare audits, hold them against a contract, and report them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from classwise.cli.app import app, kindly, out
from classwise.cli.printing import listed, say_remarks, write_page
from classwise.errors import ClasswiseError


@app.command()
@kindly
def diff(
    first: Annotated[Path, typer.Argument(help="An audited run.")],
    second: Annotated[Path, typer.Argument(help="Another one, audited in the same way.")],
    attacks: Annotated[
        str, typer.Option(help="Attacks to compare under, also clean. (default: all in common)")
    ] = "",
    weights: Annotated[
        str,
        typer.Option(help="Which weights to compare: of both, or FIRST,SECOND. (default: last)"),
    ] = "",
    split: Annotated[
        str, typer.Option(help="test, train or all. (default: test, or the only one audited)")
    ] = "",
    groups: Annotated[
        list[str] | None,
        typer.Option(
            help="A grouping to compare beside the classes; may be repeated. (default: none)"
        ),
    ] = None,
) -> None:
    """Compare two audited models class by class, on the same images.

    Says which classes are better, worse or undecided: paired McNemar tests with Holm's correction;
    overall with a bootstrap interval, the worst class with one that holds whichever classes are
    worst.

    Example: classwise diff runs/before runs/after --attacks pgd-20
    """
    from classwise.judging.groups import CLASS
    from classwise.judging.samples import diff_samples, read_samples
    from classwise.record.remarks import said_of

    chosen = weights.split(",") * (1 if "," in weights else 2)
    if len(chosen) != 2:
        raise ClasswiseError(f"--weights {weights}: give one name for both runs, or FIRST,SECOND")
    before, after = (
        read_samples(run, weights=name.strip(), split=split)
        for run, name in zip((first, second), chosen, strict=True)
    )
    for grouping in [CLASS, *(groups or [])]:
        for found in diff_samples(before, after, attacks=listed(attacks), grouping=grouping):
            out.print(str(found), highlight=False, markup=False, soft_wrap=True)
    for one in (before, after):
        for words in said_of(one.remarks):
            out.print(f"  {one.name}: {words}", highlight=False, markup=False, soft_wrap=True)


@app.command()
@kindly
def gate(
    contract: Annotated[Path, typer.Argument(help="A TOML file of rules.")],
    run: Annotated[Path, typer.Argument(help="An audited run.")],
    baseline: Annotated[
        Path | None, typer.Option(help="The audited run to compare with. (default: none)")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(help="Write JUnit XML here. (default: nowhere)")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write a Markdown comment here. (default: nowhere)")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Undecided rules close the gate and fail in JUnit.")
    ] = False,
) -> None:
    """Hold an audited model against a contract.

    The exit code is 0 where no rule is broken, 1 where one is, 3 where none is but one cannot be
    decided: on an audit that stopped early or, with --strict, for want of images.

    Example: classwise gate contract.toml runs/mine --baseline runs/main --junit gate.xml
    """
    from classwise.files import write_atomically
    from classwise.judging.gate import gate as hold

    report = hold(contract, run, baseline, strict=strict)
    if junit is not None:
        write_atomically(junit, report.junit().encode())
    if markdown is not None:
        write_atomically(markdown, report.markdown().encode())
    out.print(report.headline, highlight=False, markup=False, soft_wrap=True)
    for words in report.remarks:
        out.print(f"  note: {words}", highlight=False, markup=False, soft_wrap=True)
    for one in report.outcomes:
        words = f"  {one.status}: {one.rule.words}: {one.why}"
        out.print(words, highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(report.exit_code)


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
