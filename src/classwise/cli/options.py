"""Options of `classwise audit` that go together, each with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Normalise = Annotated[
    str | None,
    typer.Option(
        help="What the model expects and does not do: cifar10, imagenet, … (default: none)"
    ),
]
Mean = Annotated[
    str | None,
    typer.Option(help="The same by its means, such as 0.5,0.5,0.5; with --std. (default: none)"),
]
Std = Annotated[str | None, typer.Option(help="Deviations that go with --mean. (default: none)")]
Corruptions = Annotated[
    str | None,
    typer.Option(
        help="c15, c18, c19 or names such as fog,snow; beside --attacks, or clean images. "
        "(default: none)"
    ),
]
Severity = Annotated[
    str | None, typer.Option(help="Of --corruptions: 3, 1-5 or 1,3,5. (default: 1-5)")
]
Corrupted = Annotated[
    str | None,
    typer.Option(
        help="Read --corruptions from this folder of CIFAR-10-C, ImageNet-C, … (default: made here)"
    ),
]
Real = Annotated[
    str | None,
    typer.Option(
        help="Judge the answers by several true labels, too: a JSON file with a list for each "
        "image, or imagenet for its reassessed labels (docs/imagenet.md). (default: none)"
    ),
]
Groups = Annotated[
    Path | None,
    typer.Option(
        help="CSV of the images' attributes: sample,camera,… (docs/groups.md), or imagenet-x, "
        "imagenet-metaclass (docs/imagenet.md). (default: none)"
    ),
]
