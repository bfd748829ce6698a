"""The command line's frame: the app, its errors, and options that several commands share."""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer

from classwise.errors import ClasswiseError, OwnCodeError, defused
from classwise.terminal import Terminal

_PYTHONS = re.compile(r"\b(resume|wait)=True\b")  # how errors spell what is an option here
P = ParamSpec("P")
R = TypeVar("R")

app = typer.Typer(
    help="Train, attack and audit image classifiers class by class.\n\n"
    "Begin with: classwise quickstart\n\n"
    "Exit codes: 0 yes or done, 1 no (gate, --question), 2 wrong use, 3 undecided (a strict "
    "gate, --question), 130 interrupted, 143 terminated.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(
    help=(
        "Fetch data sets, and look after what is kept of them.\n\n"
        "Example: classwise data get cifar10"
    ),
    no_args_is_help=True,
)
app.add_typer(data_app, name="data")
out = Terminal()


def _say_version(wanted: bool) -> None:
    if wanted:
        from classwise import __version__

        print(f"classwise {__version__}")
        raise typer.Exit


@app.callback()
def _before(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Say it and exit."),
    ] = False,
) -> None:
    pass


Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="METHOD.OPTION=VALUE, or a training option such as weight_decay=2e-4; may be "
        "repeated. (default: none)",
    ),
]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="A recipe file may use the methods of this module. (default: none)",
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out images of a folder that cannot be decoded.")
]
PredictionsFile = Annotated[
    Path | None,
    typer.Option(
        "--predictions",
        help="A CSV or Parquet of predictions made elsewhere; no model. (default: none)",
    ),
]
Group = Annotated[
    str,
    typer.Option(
        "--group",
        help="Images of one group are never divided between training and test: the groups are a "
        "column of csv:PATH; for folder:PATH say folder or prefix. (default: none)",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
TrainedOn = Annotated[
    str | None,
    typer.Option("--data", help="Data set; see `classwise list data`. (default: digits)"),
]
Architecture = Annotated[
    str | None,
    typer.Option("--model", help="Model, or your own module:callable. (default: cnn)"),
]
Subset = Annotated[
    int | None,
    typer.Option(help="Train on so many images, as many of each class. (default: all)"),
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait while another process writes into the folder.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def data_with(data: str | None, skip_bad: bool, group: str) -> str | None:
    """The data source with what other options say of it; they say nothing where none is named."""
    from classwise.data.sources import with_option

    if data is None:
        if skip_bad:
            raise ClasswiseError("--skip-bad says how to read --data; name those, too")
        if group:
            raise ClasswiseError(f"--group {group} says how to divide --data; name those, too")
        return None
    if skip_bad:
        data = with_option(data, "skip_bad=true")
    return with_option(data, f"group={group!r}") if group else data


YES, NO, WRONG_USE, UNDECIDED, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143


class Terminated(KeyboardInterrupt):
    """Somebody asked the process to end; whatever Ctrl-C saves is saved."""


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app()
    except KeyboardInterrupt as how:  # before or after a command
        _stop(how, "")


def fail(words: str, code: int = WRONG_USE) -> NoReturn:
    """Say what went wrong on one line and leave."""
    print(f"classwise: {defused(' '.join(words.split()))}", file=sys.stderr)
    raise SystemExit(code)


def kindly(command: Callable[P, R]) -> Callable[P, R]:
    """Turn errors the user can put right, and being stopped, into one line and an exit code."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except OwnCodeError as reason:
            if reason.__cause__ is not None:
                traceback.print_exception(reason.__cause__)
            fail(str(reason))
        except ClasswiseError as reason:
            fail(_PYTHONS.sub(r"--\1", str(reason)))
        except KeyboardInterrupt as how:
            _stop(how, _to_go_on(command.__name__, kwargs))

    return wrapped


def _terminate(*_: object) -> NoReturn:
    raise Terminated


def _stop(how: KeyboardInterrupt, words: str) -> NoReturn:
    ended = isinstance(how, Terminated)
    said = "terminated" if ended else "interrupted"
    fail(f"{said}; {words}" if words else said, TERMINATED if ended else INTERRUPTED)


def _to_go_on(command: str, options: Mapping[str, Any]) -> str:
    """What is kept of a command that was stopped, and how to go on with it."""
    folder = options.get("folder")
    if command == "train":
        if folder is not None and not (folder / "run.json").exists():
            return "nothing was begun yet, repeat this command"
        again = "this command" if options.get("resume") else "this command with --resume"
        return f"finished epochs are kept, repeat {again} to go on"
    if command in ("quickstart", "study", "tune"):
        return "finished epochs and audits are kept, repeat this command to go on"
    if command == "audit":
        target = options.get("target")
        if folder is None and not (target and os.path.isdir(target)):
            return "nothing was kept; with --out FOLDER this command can be repeated to go on"
        return "finished batches are kept, repeat this command to go on"
    return "nothing is half done, repeat this command"


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
