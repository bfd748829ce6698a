"""Commands that ask whether weak classes are weak everywhere, and what their features carry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from classwise.cli.app import Device, Quiet, app, kindly, out
from classwise.errors import ClasswiseError

if TYPE_CHECKING:
    from classwise.judging.universal import Agreement

FEW = 20  # pairs of runs, and classes, that the terminal lists
OwnModel = Annotated[
    str | None,
    typer.Option(
        "--model", help="module:callable of a run trained with a model of your own. (default: none)"
    ),
]
BatchSize = Annotated[
    int,
    typer.Option(help="Images that the model is asked about at a time; no result depends on it."),
]


@app.command()
@kindly
def agree(
    runs: Annotated[list[Path], typer.Argument(help="Audited run folders, two or more.")],
    condition: Annotated[
        str, typer.Option(help="Such as pgd-20. (default: all that the runs have in common)")
    ] = "",
    weights: Annotated[
        str, typer.Option(help="Of all runs, or one name for each: last,best. (default: last)")
    ] = "",
    split: Annotated[
        str, typer.Option(help="test, train or all. (default: test, or the only one audited)")
    ] = "",
    top: Annotated[
        int | None,
        typer.Option(help="Worst classes whose overlap is counted. (default: 3, or 10 % of many)"),
    ] = None,
    same_from: Annotated[
        float, typer.Option(help="Spearman's rho from which on orders count as the same.")
    ] = 0.8,
    draws: Annotated[int, typer.Option(help="Draws of the bootstrap.", min=200)] = 2000,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    to: Annotated[
        Path | None,
        typer.Option("--out", help="Write it here: .html, .md, .csv or .json. (default: nowhere)"),
    ] = None,
) -> None:
    """Say whether runs have the same weak classes: ranks, confusions, epochs; no model is asked.

    Images are drawn anew within each class, together for all runs that saw the same ones.

    Example: classwise agree runs/a runs/b runs/c --condition pgd-20 --out agree.html
    """
    from classwise.doors.folders import write_agreement
    from classwise.doors.universality import agree as compare

    named: Any = [one.strip() for one in weights.split(",")] if "," in weights else weights
    found = compare(
        runs,
        condition=condition,
        weights=named,
        split=split,
        top=top,
        draws=draws,
        same_from=same_from,
        seed=seed,
    )
    for one in found:
        _print_agreement(one)
    if to is not None:
        for path in write_agreement(runs, found, to):
            out.print(f"Wrote {path}", soft_wrap=True)


@app.command()
@kindly
def similarity(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    network: OwnModel = None,
    weights: Annotated[str, typer.Option(help="Which weights.")] = "last",
    split: Annotated[str, typer.Option(help="test, train or all.")] = "test",
    limit: Annotated[
        int, typer.Option(help="So many images, as many of each class; 0 is all.", min=0)
    ] = 0,
    batch_size: BatchSize = 256,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Ask a model once how alike its classes are: the cosine of their mean logits.

    It is kept in the run, where `classwise agree` and `classwise report` find it.

    Example: classwise similarity runs/mine
    """
    from classwise.doors.universality import similarity as ask

    means = ask(
        run,
        weights=weights,
        network=network,
        split=split,
        limit=limit,
        batch_size=batch_size,
        device=device,
        quiet=quiet,
    )
    _print_closest(means.class_names, means.cosines, int(means.sizes.sum()))
    out.print(f"Next: classwise agree {run} RUN …", soft_wrap=True, highlight=False, markup=False)


@app.command()
@kindly
def features(
    run: Annotated[Path, typer.Argument(help="The run whose model chooses the features.")],
    kind: Annotated[str, typer.Option(help="robust, nonrobust, random or deterministic.")],
    to: Annotated[Path, typer.Option("--out", help="The file: x.npz, with x.npz.json beside it.")],
    network: OwnModel = None,
    weights: Annotated[str, typer.Option(help="Which weights.")] = "last",
    head: Annotated[
        str | None, typer.Option(help="The last layer of a model of your own. (default: found)")
    ] = None,
    limit: Annotated[
        int, typer.Option(help="So many training images, as many of each class; 0 is all.", min=0)
    ] = 0,
    eps: Annotated[
        float | None, typer.Option(help="L2 radius of the targeted kinds. (default: 0.5)")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Steps per image. (default: 1000, targeted kinds 100)")
    ] = None,
    step: Annotated[float, typer.Option(help="L2 length of a step.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Of starts and targets.")] = 0,
    batch_size: BatchSize = 256,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Make a data set that carries only some features of a run's training images.

    robust, nonrobust: images with the penultimate features of the originals (of an adversarially, a
    plainly trained run). random, deterministic: images moved towards another class, with its label.
    Interrupted, it goes on where it was. The test part is the original one.

    Example: classwise features runs/clean --kind random --out drand.npz --limit 10000
    """
    from classwise.doors.features import make_features

    found = make_features(
        run,
        kind,
        to,
        weights=weights,
        network=network,
        head=head,
        limit=limit,
        batch_size=batch_size,
        device=device,
        quiet=quiet,
        eps=eps,
        steps=steps,
        step=step,
        seed=seed,
    )
    about = found.about
    if "reached_target" in about:
        said = (
            f"{100 * about['reached_target']:.1f} % of them are called their new class by the run"
        )
    else:
        said = f"{100 * about['feature_distance_left']:.1f} % of the feature distance is left"
    lines = [f"{about['images']} images; {said}.", *about["notes"], f"Wrote {found.path}"]
    for line in [*lines, f'Next: classwise train clean --data "{found.data}"']:
        out.print(line, soft_wrap=True, highlight=False, markup=False)


def _print_agreement(found: Agreement) -> None:
    from classwise.judging.agreement import MEASURES
    from classwise.report.agreement import (
        caption,
        class_rows,
        measure_title,
        pair_rows,
        run_words,
        span_words,
    )

    _say(f"{found.condition}: {found.verdict.words}")
    table = _plain_table("runs", *(measure_title(found, name) for name in MEASURES))
    pairs = list(pair_rows(found))
    for first, second, spans in pairs[:FEW]:
        cells = [f"{first} – {second}", *(span_words(*spans[name]) for name in MEASURES)]
        table.add_row(*map(Text, cells))
    out.print(table)
    for line in caption(found):
        _say(line)
    if len(pairs) > FEW:
        _say(f"The {FEW} pairs that agree least, of {len(pairs)}; all of them: --out FILE.")
    rows = list(class_rows(found))
    table = _plain_table("class", *found.ranks.runs)
    for name, rates, ranks in rows[:FEW]:
        both = zip(rates, ranks, strict=True)
        cells = [name, *(f"{rank:g} ({100 * rate:.1f})" for rate, rank in both)]
        table.add_row(*map(Text, cells))
    out.print(table)
    left = f"; the {FEW} worst of {len(rows)} classes, all of them: --out FILE"
    _say(f"Rank, 1 for the worst, and accuracy in per cent{left if len(rows) > FEW else ''}.")
    for run in found.runs:
        for words in run_words(run):
            _say(f"  {run.name}: {words}")


def _print_closest(names: tuple[str, ...], cosines: Any, count: int) -> None:
    import numpy as np

    if len(names) < 2:
        raise ClasswiseError("similarity needs at least two classes")
    first, second = np.triu_indices(len(names), 1)
    values = cosines[first, second]
    known = np.flatnonzero(~np.isnan(values))
    table = _plain_table("classes", "cosine")
    for n in known[np.argsort(-values[known], kind="stable")][:10]:
        table.add_row(Text(f"{names[first[n]]} – {names[second[n]]}"), f"{values[n]:.3f}")
    out.print(table)
    _say(f"Mean logits over {count} images as they are; the ten most similar pairs.")


def _plain_table(first: str, *others: str) -> Table:
    from rich.box import SIMPLE_HEAD

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(Text(first), overflow="fold")
    for head in others:
        table.add_column(Text(head), justify="right", overflow="fold")
    return table


def _say(line: str) -> None:
    out.print(line, highlight=False, markup=False, soft_wrap=True)
