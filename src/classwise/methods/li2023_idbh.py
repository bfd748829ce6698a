"""IDBH: augmentation with diversity and balanced hardness (Li and Spratling, ICLR 2023)."""

from __future__ import annotations

from typing import ClassVar, Literal

from classwise.data.idbh import IDBH
from classwise.recipe import Method
from classwise.slots import Slots

POLICIES = {
    "weak": IDBH("colour", erase=0.5, area=0.33),
    "strong": IDBH("colour", erase=1.0, area=0.33),
    "svhn": IDBH("shape", erase=1.0, area=0.5, reach=8),
}


class Idbh(Method):
    """Replace crop and flip by flip, cropshift, one colour or shape change, and erasing.

    `weak` erases half of the images, `strong` all; `svhn` prefers shape changes, erases larger
    parts and shifts less. Draws are per sample. Data that must not be mirrored or moved,
    such as digits, never are.
    """

    name: ClassVar[str] = "idbh"
    paper: ClassVar[str] = "Li and Spratling, ICLR 2023"

    strength: Literal["weak", "strong", "svhn"] = "strong"

    def fill(self) -> Slots:
        """Fill the augmentation."""
        return Slots(augment=POLICIES[self.strength])
