"""What the papers' tables hold, written as recipes."""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import Any, NamedTuple

from classwise.recipe import Recipe
from classwise.recipe_text import parse_recipe
from classwise.training.config import TrainConfig
from classwise.training.presets import apply_preset


class PaperRow(NamedTuple):
    """One row of a table of a paper, and all that trains it.

    `variant` is empty where the row is as its paper states it; otherwise it names what the
    released code does instead.
    """

    paper: str
    table: str
    row: str
    variant: str
    recipe: str
    preset: str
    data: str
    model: str

    def resolve(self, **options: Any) -> tuple[Recipe, TrainConfig]:
        """The recipe and the training settings of the row; `options` of training win.

        >>> recipe, config = paper_rows()[0].resolve(seed=3)
        >>> recipe.name, config.model, config.epochs, config.seed
        ('clean', 'resnet9', 200, 3)
        """
        given = {"data": self.data, "model": self.model, **options}
        return apply_preset(self.preset, parse_recipe(self.recipe), given)


def paper_rows() -> list[PaperRow]:
    """Every row of every table of the five papers, and the variants of some.

    >>> {row.recipe for row in paper_rows() if row.row == "FAIR-TAT + CFA"}
    {'at+ccm(margin_floor=0.5)+fawa+fairtat'}
    """
    text = files(__name__).joinpath("rows.csv").read_text()
    return [PaperRow(**row) for row in csv.DictReader(text.splitlines())]
