"""Measure every comparison and write docs/equality.md: `make equality`."""

from __future__ import annotations

from pathlib import Path

import torch

from equality import (
    absld,
    avmixup,
    awp,
    balanced,
    bat,
    cfa,
    dafa,
    fairtat,
    fat,
    frl,
    idbh,
    labelaug,
    ldam,
    mart,
    noise,
    runs,
    trades,
    wat,
)
from equality.comparison import Comparison

MODULES = (
    *(trades, mart, cfa, fat, frl, dafa, wat, bat, fairtat, awp, absld, avmixup),
    *(labelaug, ldam, balanced, idbh, noise, runs),
)
COMPARISONS: list[Comparison] = [row for module in MODULES for row in module.COMPARISONS]
PAGE = Path(__file__).parents[2] / "docs" / "equality.md"

OPENING = """\
# classwise beside released code

Made by `make equality`; the same functions are tests (`tests/equality/`), and a test holds this page to them.

Every method's training step is transcribed from the code its authors released, at the commit named, in our own words and with plain loops; none of that code is here. Both run in float64 on the same batch, network (with BatchNorm, of 4 and of 10 classes) and starting noise; ours goes through the recipe, its class policies and `classwise.training`. The figures are the largest differences found: of the images trained on (all views), of the loss, of the gradient of every parameter, of the weights after a step of SGD, and of BatchNorm's running statistics; of class policies, over as many epochs as named. Equal means below 1e-12 unless the verdict says otherwise. Why ours differs where it does is in [deviations.md](deviations.md).

| method | recipe | released code | largest difference | verdict |
| --- | --- | --- | --- | --- |
"""  # noqa: E501


def short(figure: float) -> str:
    """One digit and the order of magnitude.

    >>> short(0.0), short(2.34e-16), short(0.041)
    ('0', '2e-16', '4e-2')
    """
    if not figure:
        return "0"
    digit, power = f"{figure:.0e}".split("e")
    return f"{digit}e{int(power)}"


def line(row: Comparison) -> str:
    """One row of the table."""
    figures = ", ".join(f"{name} {short(figure)}" for name, figure in row.figures.items())
    return f"| {row.method} | `{row.recipe}` | {row.code} | {figures} | {row.verdict} |"


def page() -> str:
    """The whole page, measured now."""
    return OPENING + "".join(f"{line(row)}\n" for row in COMPARISONS)


if __name__ == "__main__":
    torch.set_num_threads(1)
    PAGE.write_text(page())
