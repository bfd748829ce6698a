"""Normalisation that a model expects and does not do itself, put in front of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from classwise.errors import ClasswiseError, unknown
from classwise.models.blackbox import BlackBox
from classwise.models.classifier import Classifier
from classwise.types import Images, LogitModel, Logits

_KNOWN = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "mnist": ((0.1307,), (0.3081,)),
    "none": ((0.0,), (1.0,)),  # said, so that it is no oversight
}


@dataclass(frozen=True, slots=True)
class Normalisation:
    """(x − mean)/deviation per channel, of images in [0, 1]."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, given: Any) -> Normalisation:
        """Read `cifar10`, `imagenet`, or a pair of means and deviations.

        >>> Normalisation.of("imagenet").mean
        (0.485, 0.456, 0.406)
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, str):
            if given not in _KNOWN:
                raise unknown("normalisation", given, [*_KNOWN, "a pair of means and deviations"])
            return cls(*_KNOWN[given])
        try:
            mean, deviation = (tuple(float(one) for one in np.atleast_1d(part)) for part in given)
        except (TypeError, ValueError):
            raise ClasswiseError(
                f"normalisation {given!r}: give {', '.join(_KNOWN)}, or a pair of means and "
                "deviations, one of each per channel"
            ) from None
        if len(mean) != len(deviation) or not all(one > 0 for one in deviation):
            raise ClasswiseError(
                f"normalisation by means {mean} and deviations {deviation}: give one of each per "
                "channel, deviations above 0"
            )
        return cls(mean, deviation)

    def __str__(self) -> str:
        numbers = (" ".join(f"{one:g}" for one in part) for part in (self.mean, self.deviation))
        return "mean {}, deviation {}".format(*numbers)

    def before(self, model: LogitModel, channels: int) -> LogitModel:
        """The model behind the normalisation; one that normalises already is refused."""
        if isinstance(model, Classifier | Normalised):
            raise ClasswiseError(
                "this model normalises its images itself; leave the normalisation out, or it would "
                "be applied twice"
            )
        if len(self.mean) not in (1, channels):
            raise ClasswiseError(
                f"the normalisation is for {len(self.mean)} channels, but the images have "
                f"{channels}; give one mean and deviation per channel"
            )
        if isinstance(model, nn.Module):
            return Normalised(model, self)
        if isinstance(model, BlackBox):
            function = partial(_normalised, model.function, self)
            return BlackBox(function, model.name, model.arrays)
        return partial(_normalised, model, self)


class Normalised(nn.Module):
    """A module behind a normalisation.

    >>> Normalised(nn.Flatten(), Normalisation((0.5,), (0.25,)))(torch.ones(1, 1, 1, 2))
    tensor([[2., 2.]])
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, model: nn.Module, how: Normalisation) -> None:
        super().__init__()
        self.model = model
        first = next((one for one in model.parameters() if one.is_floating_point()), None)
        for name in ("mean", "deviation"):
            values = torch.tensor(getattr(how, name)).view(1, -1, 1, 1)
            self.register_buffer(name, values if first is None else values.to(first))
        self.training = model.training

    def forward(self, images: Images) -> Logits:
        """Normalise and ask."""
        logits: Logits = self.model((images - self.mean) / self.deviation)
        return logits


def _normalised(function: Any, how: Normalisation, images: Any) -> Any:
    """Arrays or tensors, whatever the function takes."""
    shape = (1, -1, 1, 1)
    if isinstance(images, Tensor):
        middle, spread = (images.new_tensor(v).view(shape) for v in (how.mean, how.deviation))
        return function((images - middle) / spread)
    mean, deviation = (np.array(v, images.dtype).reshape(shape) for v in (how.mean, how.deviation))
    return function((images - mean) / deviation)
