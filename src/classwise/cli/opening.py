"""Options that say which model is meant, and how its weights are opened."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

Network: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="module:callable of a run trained with a model of your own. (default: none)",
    ),
]
Arch: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="The network that a weights file of other people belongs to: resnet18, timm:NAME, "
        "torchvision:NAME, hf:FOLDER, module:callable, … (docs/models.md). (default: none)"
    ),
]
Rename: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OLD=NEW",
        help="A part that has another name in that file; OLD= leaves it out. May be repeated. "
        "(default: none)",
    ),
]
Weights: TypeAlias = Annotated[
    str,
    typer.Option(
        help="Those of the run: last, best, ema-last, … or all; beside module:callable or "
        "timm:NAME, a file. (default: last, also of each average)"
    ),
]
