"""Commands that audit, compare and report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from classwise.cli import options
from classwise.cli.app import Device, Quiet, SkipBad, app, kindly, out
from classwise.cli.printing import (
    check_classes,
    command_for_all,
    lead_on,
    listed,
    normalisation,
    only_reading,
    print_audits,
    question_code,
    say_healthy,
    say_remarks,
    write_page,
)
from classwise.errors import ClasswiseError


@app.command()
@kindly
def audit(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            help="A run folder, a weights file, module:callable, or an .onnx file. "
            "(default: none, with --from)"
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="module:callable of a run trained with a model of your own. (default: none)",
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Data set. (default: the run's)")] = None,
    attacks: Annotated[
        str | None,
        typer.Option(help="Names, such as clean,pgd-20(eps=4/255). (default: clean,pgd-20)"),
    ] = None,
    corruptions: options.Corruptions = None,
    severity: options.Severity = None,
    corrupted: options.Corrupted = None,
    eps: Annotated[
        str | None,
        typer.Option(help="Radius of attacks that state none. (default: the run's, or 8/255)"),
    ] = None,
    norm: Annotated[
        str | None, typer.Option(help="Linf or L2. (default: the run's, or Linf)")
    ] = None,
    weights: Annotated[
        str,
        typer.Option(
            help="Names from the run, or `all`; beside module:callable, a file. (default: last, "
            "also of each average)"
        ),
    ] = "",
    normalise: options.Normalise = None,
    mean: options.Mean = None,
    std: options.Std = None,
    split: Annotated[
        str, typer.Option(help="test, train or all. (default: what it was not trained on)")
    ] = "",
    limit: Annotated[int, typer.Option(help="So many images, balanced; 0 is all.", min=0)] = 0,
    minutes: Annotated[
        float | None,
        typer.Option(help="Audit as much as fits into so many minutes. (default: all)"),
    ] = None,
    question: Annotated[
        str | None,
        typer.Option(help='Stop as soon as this is settled: "worst>=0.2". (default: none)'),
    ] = None,
    health: Annotated[
        bool, typer.Option("--health", help="Probe for gradient masking and broken evaluation.")
    ] = False,
    repeat: Annotated[
        int, typer.Option(help="Mean of so many passes, for a model that draws random numbers.")
    ] = 1,
    groups: options.Groups = None,
    real: options.Real = None,
    ledger: Annotated[
        Path | None,
        typer.Option("--from", help="Recompute from stored predictions; no model. (default: none)"),
    ] = None,
    batch_size: Annotated[
        int,
        typer.Option(
            help="Images that the model is asked about at a time; no result depends on it.", min=1
        ),
    ] = 256,
    seed: Annotated[int, typer.Option(help="Of the attacks' random draws.")] = 0,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Where to keep the audits of a model that is no run. (default: nowhere)"
        ),
    ] = None,
    classes: Annotated[
        str, typer.Option(help="all: list every class, also of more than 20.", metavar="all|worst")
    ] = "worst",
    page: Annotated[
        Path | None,
        typer.Option("--report", help="Write the report of the run here, too. (default: nowhere)"),
    ] = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Attack a model and report its accuracy class by class.

    What was audited before is not attacked again; an interrupted audit goes on where it was.
    With --question the exit code is the answer: 0 yes, 1 no, 3 undecided.

    Example: classwise audit runs/mine --attacks clean,fgsm,pgd-20 --eps 0.2

    Example: classwise audit runs/mine --corruptions c18 --severity 1-5
    """
    from classwise.attacks.corruption import with_corruptions
    from classwise.data.sources import with_option
    from classwise.doors.targets import audit_target
    from classwise.doors.wish import Wish
    from classwise.judging.audits import read_ledger

    everything = check_classes(classes)
    if ledger is not None:
        only_reading(context, "ledger", "attacks", "weights", "split", "classes", "quiet")
        audits = read_ledger(ledger, attacks=listed(attacks), weights=weights, split=split)
        command = command_for_all(ledger, weights=weights, split=split)
        print_audits(audits, everything=everything, command=command)
        return
    if target is None:
        raise ClasswiseError("nothing to audit; name a run folder, a weights file or a model")
    if skip_bad and data is not None:
        data = with_option(data, "folder", "skip_bad=true")
    wish = Wish(
        target,
        network=network,
        data=data,
        attacks=with_corruptions(attacks, corruptions, severity, corrupted),
        eps=eps,
        norm=norm,
        weights=weights,
        split=split,
        limit=limit,
        minutes=minutes,
        question=question,
        health=health,
        repeat=repeat,
        normalise=normalisation(normalise, mean, std),
        groups=groups,
        real=real,
        batch_size=batch_size,
        seed=seed,
        folder=folder,
        device=device,
        quiet=quiet,
    )
    audits = audit_target(wish)
    where = folder or (Path(target) if Path(target).is_dir() else None)
    command = command_for_all(where, weights=weights, split=split)
    print_audits(audits, everything=everything, command=command)
    if health:
        say_healthy(audits)
    lead_on(where, page)
    if question is not None:
        raise typer.Exit(question_code(audits))


@app.command()
@kindly
def diff(
    first: Annotated[Path, typer.Argument(help="An audited run.")],
    second: Annotated[Path, typer.Argument(help="Another one, audited in the same way.")],
    attacks: Annotated[
        str, typer.Option(help="Conditions to compare. (default: all in common)")
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

    Paired McNemar tests with Holm's correction; overall and worst class with bootstrap intervals.

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
        Path | None, typer.Option(help="The audited run that must not be undercut. (default: none)")
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

    The exit code is 0 where every rule holds, 1 where one is broken, 3 where none is broken but
    one cannot be decided, such as on an audit that stopped early.

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
