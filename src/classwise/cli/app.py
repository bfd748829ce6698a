"""The command line's frame: the app, its errors, and options that several commands share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Annotated, NoReturn, ParamSpec, TypeVar

import typer
from rich.console import Console

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

Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="METHOD.OPTION=VALUE, or a training option such as weight_decay=2e-4."
    ),
]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import", metavar="MODULE", help="A recipe file may use the methods of this module."
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out images of a folder that cannot be decoded.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def main() -> None:
    """Run the command line."""
    try:
        app()
    except KeyboardInterrupt:
        fail("interrupted")


def fail(words: str) -> NoReturn:
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

    return wrapped


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
