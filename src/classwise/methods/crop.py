"""The customary crop and flip, with its choices."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from classwise.data.augment import CropFlip
from classwise.recipe import Method
from classwise.slots import Slots


class Crop(Method):
    """Shift training images at random and mirror half of them, with reflected or zero borders.

    Without it images are shifted by an eighth of their size with reflected borders, as in the
    code of AT and CFA; that of TRADES, FAT, FRL, WAT and DAFA pads with zeros. Data that must
    not be mirrored, such as digits, never are.
    """

    name: ClassVar[str] = "crop"

    pad: Annotated[int, Field(ge=0)] | None = None  # pixels; None is an eighth of the size
    padding: Literal["reflect", "zero"] = "reflect"
    flip: bool = True

    def fill(self) -> Slots:
        """Fill the augmentation."""
        return Slots(augment=CropFlip(self.pad, self.flip, self.padding))
