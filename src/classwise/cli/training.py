"""Commands that train."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from classwise.cli.app import (
    Architecture,
    Device,
    Group,
    Imports,
    Quiet,
    Sets,
    SkipBad,
    Subset,
    TrainedOn,
    Wait,
    app,
    data_with,
    divide_sets,
    kindly,
    out,
)
from classwise.errors import ClasswiseError

if TYPE_CHECKING:
    from classwise.recipe import Recipe
    from classwise.training.config import TrainConfig


@app.command()
@kindly
def quickstart(
    folder: Annotated[Path, typer.Option("--out", help="Where the runs go.")] = Path(
        "runs/quickstart"
    ),
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Train five recipes on handwritten digits, audit them, and write one report.

    Takes about three minutes on two cores and needs no network.

    Example: classwise quickstart
    """
    from classwise.quickstart import run_quickstart

    report = run_quickstart(folder, device=device, quiet=quiet, console=out)
    words = f"\nReport: {report} (open it in a browser; it needs no network)"
    out.print(words, soft_wrap=True, highlight=False)


@app.command()
@kindly
def train(
    recipe: Annotated[
        str,
        typer.Argument(help="Such as trades+ccm+ema, at+mymodule:MyMethod, or a recipe.toml."),
    ],
    data: TrainedOn = None,
    model: Architecture = None,
    begin: Annotated[
        str | None,
        typer.Option(help="Weights to begin from: RUN, RUN@best, or a file. (default: random)"),
    ] = None,
    freeze: Annotated[
        str | None,
        typer.Option(
            help="Parts that do not train, such as features or features.0*. (default: none)"
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Settings for what you leave open: minutes, hours, paper, or paper:NAME with a "
            "method of the recipe for its released script, as in paper:wat. (default: none)"
        ),
    ] = None,
    eps: Annotated[
        str | None,
        typer.Option(help="Attack radius, where pixels go from 0 to 1. (default: 8/255)"),
    ] = None,
    judge_eps: Annotated[
        str | None,
        typer.Option(
            help="Attack radius of validation, and of later audits. (default: the training eps)"
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training data. (default: 30)")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step. (default: 128)")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate. (default: 0.1)")] = None,
    valid: Annotated[
        str | None,
        typer.Option(
            help="Training images held out for validation: a share, or first:100 or last:300 of "
            "each class. (default: 0.02)"
        ),
    ] = None,
    subset: Subset = None,
    watch: Annotated[
        str | None,
        typer.Option(
            help="Follow the classes over the epochs, such as test:clean,test:pgd-20@ema (@ema: of "
            "that average); nothing is decided by it, and it takes a tenth of the run's network "
            "passes at most, unless --set watch_share=0.2 or --set watch_every=1 says otherwise. "
            "(default: none)"
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="All draws follow from it. (default: 0)")] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Run folder. (default: runs/RECIPE-DATA-sSEED)")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where the run stopped; it must be there.")
    ] = False,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate", help="Time a few batches, say what the whole run takes, and end."
        ),
    ] = False,
    wait: Wait = False,
    skip_bad: SkipBad = False,
    group: Group = "",
    sets: Sets = None,
    imports: Imports = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Train a recipe and leave a run folder behind.

    A recipe is a method, or several with + between them: `classwise list methods`.

    Example: classwise train trades+ccm --eps 0.2 --set ccm.margin_floor=0.4 --out runs/mine
    """
    from classwise.recipe_text import load_recipe
    from classwise.spelling import parse_value
    from classwise.training.config import TrainConfig
    from classwise.training.loop import train as run_training
    from classwise.training.presets import apply_preset
    from classwise.training.run import Run

    method_sets, others = divide_sets(sets or [])
    chosen = load_recipe(recipe, method_sets, imports or ())
    given = {
        "data": data,
        "model": model,
        "begin": begin,
        "freeze": freeze,
        "eps": eps,
        "judge_eps": judge_eps,
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": lr,
        "valid": valid,
        "subset": subset,
        "watch": watch,
        "seed": seed,
    }
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    options |= {name: parse_value(value) for name, value in others.items()}
    if skip_bad or group:
        options["data"] = data_with(options.get("data", "digits"), skip_bad, group)
    if preset is None:
        config = TrainConfig(**options)
    else:
        chosen, config = apply_preset(preset, chosen, options)
    if estimate:
        idle = {"--out": folder, "--resume": resume, "--wait": wait, "--quiet": quiet}
        return _estimate(chosen, config, device, [name for name, given in idle.items() if given])
    name = f"{chosen.name}-{config.data}-s{config.seed}"
    plain = "".join(letter if letter.isalnum() or letter in "+-." else "-" for letter in name)
    where = folder or Path("runs") / plain
    found = Run(where)
    if resume and not found.begun:
        raise ClasswiseError(f"{where} holds no run to go on with; leave out --resume to begin it")
    finished = resume and found.finished_epochs == config.epochs
    run = run_training(
        chosen, config, out=where, resume=resume, wait=wait, device=device, quiet=quiet
    )
    words = f"Finished already, all {config.epochs} epochs of" if finished else "Trained"
    out.print(f"{words} {chosen.name}: {run.path}", soft_wrap=True, highlight=False)
    for average in run.unopened_averages:
        out.print(f"{average} never opened its gate, so it has no weights", highlight=False)
    again = f" --model '{config.model}'" if run.own_model else ""  # a folder may not name code
    out.print(f"Next: classwise audit {run.path}{again}", soft_wrap=True, highlight=False)


def _estimate(recipe: Recipe, config: TrainConfig, device: str, idle: list[str]) -> None:
    """Print what a run would take; what has no say in that is refused."""
    from classwise.training.estimate import estimate

    if idle:
        raise ClasswiseError(
            f"{idle[0]} has no effect with --estimate, which trains nothing and leaves nothing "
            f"behind; leave {idle[0]} out"
        )
    found = estimate(recipe, config, device=device)
    out.print(str(found), highlight=False, soft_wrap=True, markup=False)
