"""`classwise tune`: search the options of a recipe on validation images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from classwise.cli.app import (
    Architecture,
    Device,
    Imports,
    Quiet,
    Sets,
    Subset,
    TrainedOn,
    Wait,
    app,
    divide_sets,
    kindly,
    out,
)

if TYPE_CHECKING:
    from classwise.tuning.search import Tuned

VALID = "0.2"  # more than a run sets aside: here validation decides everything


@app.command()
@kindly
def tune(
    recipe: Annotated[str, typer.Argument(help="Such as trades+ccm, or a recipe.toml.")],
    search: Annotated[
        str | None,
        typer.Option(
            help="What may vary: trades.beta=1..10,lr=log:0.01..0.4,schedule=step|cosine. "
            "(default: ranges for the recipe's methods, and lr)"
        ),
    ] = None,
    data: TrainedOn = None,
    model: Architecture = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Settings for what you leave open, as of `train`. (default: none)"),
    ] = None,
    eps: Annotated[
        str | None,
        typer.Option(help="Attack radius, where pixels go from 0 to 1. (default: 8/255)"),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of a trial. (default: 30)")] = None,
    valid: Annotated[
        str,
        typer.Option(
            help="Training images held out to judge by: a share, or first:100 or last:300 of each "
            "class."
        ),
    ] = VALID,
    subset: Subset = None,
    seed: Annotated[
        int | None, typer.Option(help="Of every trial's training. (default: 0)")
    ] = None,
    search_seed: Annotated[int, typer.Option(help="Of the values that are drawn.", min=0)] = 0,
    trials: Annotated[
        int, typer.Option(help="Trials in all, with those that are there.", min=1)
    ] = 20,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Begin no trial after so long; those that run go on to their end. "
            "(default: no limit)",
            min=0.0,
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Trials at a time.", min=1)] = 1,
    no_prune: Annotated[
        bool, typer.Option("--no-prune", help="Give all epochs also to trials that do badly.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Where it goes. (default: runs/tune-RECIPE)")
    ] = None,
    wait: Wait = False,
    sets: Sets = None,
    imports: Imports = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Search a recipe's options: average against worst-class robust accuracy on validation.

    Test images are never looked at. Interrupt it whenever you like, and repeat the command to go
    on: finished trials are not repeated. Needs Optuna, pip install 'classwise[tune]'.

    Example: classwise tune trades+ccm --search "trades.beta=1..10,lr=log:0.01..0.4" --eps 0.1
    """
    from classwise.spelling import parse_value
    from classwise.tuning.page import write_page
    from classwise.tuning.ranges import default_search, parse_search
    from classwise.tuning.search import Budget, Search
    from classwise.tuning.search import tune as run_search
    from classwise.tuning.start import Start
    from classwise.tuning.trials import load_optuna

    load_optuna()  # said before anything else is looked at
    methods, others = divide_sets(sets or [])
    given = {"data": data, "model": model, "eps": eps, "epochs": epochs, "valid": valid,
             "subset": subset, "seed": seed}  # fmt: skip
    training: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    training |= {name: parse_value(value) for name, value in others.items()}
    start = Start(recipe, methods, training, preset, tuple(imports or ()))
    start.made({})  # a mistake that has nothing to do with the ranges is told as such
    varied = default_search(start) if search is None else parse_search(search, start)
    wanted = Search.of(start, varied, not no_prune, search_seed)
    where = folder or Path("runs") / f"tune-{start.made({})[0].name}".replace(":", "-")
    if not quiet:
        said = ", ".join(str(one) for one in varied)
        out.print(f"Searching {said} in {where}", highlight=False, soft_wrap=True, markup=False)
    budget = Budget(trials, minutes, workers)
    tuned = run_search(wanted, where, budget, device=device, wait_for=wait, quiet=quiet)
    _show(tuned, write_page(tuned))


def _show(tuned: Tuned, page: Path) -> None:
    from rich.table import Table
    from rich.text import Text

    from classwise.tuning.summary import Summary

    summary = Summary.of(tuned)
    table = Table(title="Trials that no other beats in both")
    for name in summary.head:
        table.add_column(Text(name), justify="right")
    for row in summary.rows:
        table.add_row(*(Text(cell) for cell in row))
    out.print(table)
    best = (summary.best_words, *([f"Train it: {summary.command}"] if summary.command else []))
    for line in (*summary.words, *best, f"Page: {page}"):
        out.print(line, highlight=False, soft_wrap=True, markup=False)
