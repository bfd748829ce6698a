"""Options of `classwise audit` about corruptions, labels and groups."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Corruptions = Annotated[
    str | None,
    typer.Option(
        help="The 15, 18 or 19 common corruptions as c15, c18 or c19, or names such as fog,snow; "
        "beside --attacks, or clean images. (default: none)"
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
