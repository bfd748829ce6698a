"""The customary crop and flip, with its choices."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from classwise.data.augment import CropFlip
from classwise.recipe import Method
from classwise.slots import Slots


class Crop(Method):
    """Shift training images at random and mirror half of them, with reflected or zero borders.

    Without it images are shifted as far as their data allow (an eighth of their size, unless the
    data say otherwise; digits not at all) with reflected borders, as in the code of AT and CFA;
    that of TRADES, FAT, FRL, WAT and DAFA pads with zeros. `pad` moves them by so much, whatever
    the data say. Data that must not be mirrored, such as digits, never are.
    """

    name: ClassVar[str] = "crop"

    pad: Annotated[int, Field(ge=0)] | None = None  # pixels; None is what the data allow
    padding: Literal["reflect", "zero"] = "reflect"
    flip: bool = True

    def fill(self) -> Slots:
        """Fill the augmentation."""
        return Slots(augment=CropFlip(self.pad, self.flip, self.padding))
