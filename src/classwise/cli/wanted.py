"""Options that say what a model wants, and which of its outputs count."""

from __future__ import annotations

from typing import Annotated

import typer

Normalise = Annotated[
    str | None,
    typer.Option(
        help="Normalisation that the model expects and does not do itself: cifar10, imagenet, …, "
        "or none. (default: as its configuration says, if it has one)"
    ),
]
Mean = Annotated[
    str | None,
    typer.Option(
        help="The same by its means, such as 0.5,0.5,0.5 or 127/255; with --std. (default: none)"
    ),
]
Std = Annotated[str | None, typer.Option(help="Deviations that go with --mean. (default: none)")]
Resize = Annotated[
    str | None,
    typer.Option(
        help="Size the model takes: the shorter side, or HEIGHTxWIDTH; 256:bicubic; none. "
        "(default: as its configuration says)"
    ),
]
Crop = Annotated[
    str | None,
    typer.Option(
        help="So many pixels from the middle, after --resize. (default: as its configuration says)"
    ),
]
Channels = Annotated[
    str | None,
    typer.Option(
        help="bgr: the model takes blue first; rgb, bgr: it takes grey images as three channels. "
        "(default: as the data are)",
        metavar="rgb|bgr",
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        help="Which of its outputs are the logits: a name or number; probabilities or "
        "log-probabilities. (default: found)"
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Open a TorchScript or torch.export file, and so run its author's code."
    ),
]
