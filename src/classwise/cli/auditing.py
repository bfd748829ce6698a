"""The command that audits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from classwise.cli import options
from classwise.cli.app import (
    Device,
    Group,
    PredictionsFile,
    Quiet,
    SkipBad,
    app,
    data_with,
    kindly,
)
from classwise.cli.opening import Arch, Network, Rename, Weights
from classwise.cli.printing import (
    check_classes,
    check_page,
    command_for_all,
    lead_on,
    listed,
    normalisation,
    only_reading,
    print_audits,
    print_predictions,
    question_code,
    say_healthy,
)
from classwise.cli.wanted import Channels, Crop, Mean, Normalise, Output, Resize, Std, Trust
from classwise.errors import ClasswiseError


@app.command()
@kindly
def audit(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            help="A run folder, a weights file (FILE@KEY where it holds several models), "
            "module:callable, timm:NAME, torchvision:NAME, hf:FOLDER, or an .onnx file. "
            "(default: none, with --from)"
        ),
    ] = None,
    network: Network = None,
    arch: Arch = None,
    rename: Rename = None,
    data: Annotated[str | None, typer.Option(help="Data set. (default: the run's)")] = None,
    attacks: Annotated[
        str | None,
        typer.Option(
            help='Names, such as clean,pgd-20(eps=4/255), or "clean,pgd-20 on 200", which attacks '
            "200 of the images. (default: clean,pgd-20)"
        ),
    ] = None,
    corruptions: options.Corruptions = None,
    severity: options.Severity = None,
    corrupted: options.Corrupted = None,
    eps: Annotated[
        str | None,
        typer.Option(
            help="Attack radius, where pixels go from 0 to 1; attacks that state their own keep "
            "it. (default: the run's, or 8/255)"
        ),
    ] = None,
    norm: Annotated[
        str | None, typer.Option(help="Of the radius: Linf or L2. (default: the run's, or Linf)")
    ] = None,
    weights: Weights = "",
    normalise: Normalise = None,
    mean: Mean = None,
    std: Std = None,
    resize: Resize = None,
    crop: Crop = None,
    channels: Channels = None,
    output: Output = None,
    trust: Trust = False,
    split: Annotated[
        str, typer.Option(help="test, train or all. (default: what it was not trained on)")
    ] = "",
    limit: Annotated[
        int,
        typer.Option(
            help="So many images, as many of each class, under all conditions; 0 is all.", min=0
        ),
    ] = 0,
    minutes: Annotated[
        float | None,
        typer.Option(help="Audit as much as fits into so many minutes. (default: all)"),
    ] = None,
    question: Annotated[
        str | None,
        typer.Option(help='Stop as soon as this is settled: "worst>=0.2". (default: none)'),
    ] = None,
    health: Annotated[
        bool,
        typer.Option(
            "--health",
            help="Probe for gradients that lead attacks astray, and other signs that the numbers "
            "are too good.",
        ),
    ] = False,
    repeat: Annotated[
        int, typer.Option(help="Mean of so many passes, for a model that draws random numbers.")
    ] = 1,
    groups: options.Groups = None,
    real: options.Real = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A folder that keeps audits: print them again; no model is asked. (default: none)",
        ),
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
        str,
        typer.Option(
            help="Of more than 20 classes list the worst 10, or all.", metavar="all|worst"
        ),
    ] = "worst",
    page: Annotated[
        Path | None,
        typer.Option("--report", help="Write a report, too: x.html, .md, …. (default: nowhere)"),
    ] = None,
    skip_bad: SkipBad = False,
    group: Group = "",
    predictions: PredictionsFile = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Attack a model and report its accuracy class by class.

    What was audited before is not attacked again; an interrupted audit goes on where it was.
    With --question the exit code is the answer: 0 yes, 1 no, 3 undecided.

    Example: classwise audit runs/mine --attacks clean,fgsm,pgd-20 --eps 0.2

    Or: classwise audit net.onnx --data npz:mine.npz --normalise imagenet --resize 224

    Or: classwise audit theirs.pth --arch resnet18 --normalise cifar10 --data cifar10

    What is certified, and what an attack leaves, of the model smoothed with Gaussian noise:
    classwise audit runs/mine --norm L2 --eps 0.25 --attacks "clean,smoothing,smoothed-pgd-20"

    Or: classwise audit runs/mine --corruptions c18 --severity 1-5
    """
    from classwise.attacks.corruption import with_corruptions
    from classwise.doors.targets import audit_target
    from classwise.doors.wish import Wish
    from classwise.judging.audits import read_ledger
    from classwise.record.opening import Opening

    everything = check_classes(classes)
    if ledger is not None:
        only_reading(context, "ledger", "attacks", "weights", "split", "classes", "quiet")
        audits = read_ledger(ledger, attacks=listed(attacks), weights=weights, split=split)
        command = command_for_all(ledger, audits)
        print_audits(audits, everything=everything, command=command)
        return
    if predictions is not None:
        return print_predictions(context, predictions, folder, page, everything)
    if target is None:
        raise ClasswiseError("nothing to audit; name a run folder, a weights file or a model")
    # os.path answers no for names that no file can have
    where = folder or (Path(target) if os.path.isdir(target) else None)
    check_page(page, where)
    data = data_with(data, skip_bad, group)
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
        opening=Opening.of(arch, rename, None),
        resize=resize,
        crop=crop,
        channels=channels,
        output=output,
        trust=trust,
        groups=groups,
        real=real,
        batch_size=batch_size,
        seed=seed,
        folder=folder,
        device=device,
        quiet=quiet,
    )
    audits = audit_target(wish)
    print_audits(audits, everything=everything, command=command_for_all(where, audits))
    if health:
        say_healthy(audits)
    lead_on(where, page)
    if question is not None:
        raise typer.Exit(question_code(audits))
