"""The command that shows and clears what is kept of decoded pictures."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from classwise.cli.app import data_app, kindly, out


@data_app.command("cache")
@kindly
def data_cache(
    clear: Annotated[
        bool, typer.Option("--clear", help="Remove them; pictures are decoded again when needed.")
    ] = False,
    only: Annotated[
        str, typer.Option(metavar="NAME", help="Only this one of them. (default: all)")
    ] = "",
) -> None:
    """List the decoded pictures that are kept for later commands, or clear them.

    They are in $CLASSWISE_CACHE, else in the user's cache folder. Downloaded data sets stay.

    Example: classwise data cache --clear --only pets-1f0c33ab
    """
    from classwise.data.cache import clear as remove
    from classwise.data.cache import entries, pictures_folder
    from classwise.data.decoded import spell_bytes
    from classwise.errors import unknown

    found = entries()
    names = [one.place.name for one in found]
    if only and only not in names:
        raise unknown("name", only, names)
    chosen = [one for one in found if only in ("", one.place.name)]
    table = Table("name", "folder", "images", "pixels", "size")
    for one in chosen:
        if clear:
            remove(one)
        pixels, size = f"{one.box[0]}×{one.box[1]}", spell_bytes(one.nbytes)
        table.add_row(one.place.name, one.root, str(one.images), pixels, size)
    if chosen:
        out.print(table)
    total = spell_bytes(sum(one.nbytes for one in chosen))
    word = "cleared" if clear else "kept"
    said = f"{len(chosen)} {word}, {total} in {pictures_folder()}"
    out.print(said, soft_wrap=True, highlight=False, markup=False)
