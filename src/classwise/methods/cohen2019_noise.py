"""Training under Gaussian noise, for a model that is to be smoothed (Cohen et al., ICML 2019)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from classwise.recipe import Method
from classwise.slots import Slots


class Noise(Method):
    """Add Gaussian noise to every training image, after crop and flip.

    x + σ·z, z ~ N(0, I), drawn anew in every epoch and not clipped. A model that is smoothed with
    noise of the same σ (`classwise audit --attacks "smoothing(sigma=0.25)" --norm L2`) must know
    such images, or there is little to certify.
    """

    name: ClassVar[str] = "noise"
    paper: ClassVar[str] = "Cohen, Rosenfeld and Kolter, ICML 2019"
    implies: ClassVar[str] = "clean"

    sigma: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.25  # σ

    def fill(self) -> Slots:
        """Fill the noise."""
        return Slots(noise=self.sigma)
