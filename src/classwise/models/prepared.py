"""A model behind what it wants: images are prepared for it, and logits taken from its answer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classwise.errors import ClasswiseError
from classwise.models.blackbox import BlackBox
from classwise.models.classifier import Around, Classifier, all_outputs
from classwise.models.outputs import Output
from classwise.models.preparation import Normalisation, Preparation
from classwise.types import Images, LogitModel, Logits


class Front(nn.Module):
    """A preparation for images of one shape.

    >>> from classwise.models.preparation import Normalisation
    >>> halves = Preparation(normalisation=Normalisation((0.5,), (0.25,)))
    >>> Front(halves, (1, 1, 2))(torch.ones(1, 1, 1, 2)).flatten()
    tensor([2., 2.])
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self, how: Preparation, shape: tuple[int, ...], like: Tensor | None = None
    ) -> None:
        super().__init__()
        channels, height, width = shape
        self.bgr, self.repeated = how.channels == "bgr", channels == 1 and bool(how.channels)
        channels = 3 if self.repeated else channels
        if self.bgr and channels != 3:
            raise ClasswiseError(
                f"channels bgr is for images of three channels, and these have {channels}"
            )
        self.size = how.resize.to(height, width) if how.resize else (height, width)
        self.way = how.resize.way if how.resize and self.size != (height, width) else None
        self.box = _middle(self.size, how.crop)
        self.normalises = how.normalisation is not None
        short = like is not None and like.dtype in (torch.float16, torch.bfloat16)
        self.short = like.dtype if like is not None and short else None
        if how.normalisation is not None:
            if not how.normalisation.fits(channels):
                raise ClasswiseError(
                    f"the normalisation is for {len(how.normalisation.mean)} channels, but the "
                    f"images have {channels}; give one mean and deviation per channel"
                )
            for name in ("mean", "deviation"):
                values = torch.tensor(getattr(how.normalisation, name)).view(1, -1, 1, 1)
                self.register_buffer(name, values if like is None else values.to(like))

    def forward(self, images: Images) -> Images:
        """Prepare."""
        if self.repeated:
            images = images.expand(-1, 3, -1, -1)
        if self.way is not None:
            # half precision has no such kernel on processors
            whole = images if self.short is None else images.float()
            whole = F.interpolate(whole, self.size, mode=self.way, antialias=True)
            whole = whole.clamp(0, 1) if self.way == "bicubic" else whole  # it may overshoot
            images = whole if self.short is None else whole.to(self.short)
        if self.box is not None:
            top, left, height, width = self.box
            images = images[:, :, top : top + height, left : left + width]
        if self.normalises:
            images = (images - self.mean) / self.deviation
        return images.flip(1) if self.bgr else images


def _middle(
    size: tuple[int, int], crop: tuple[int, int] | None
) -> tuple[int, int, int, int] | None:
    """Top, left, height and width of a crop; None where nothing is cut away."""
    if crop is None or crop == size:
        return None
    if crop[0] > size[0] or crop[1] > size[1]:
        raise ClasswiseError(
            f"crop {crop[0]}×{crop[1]} is larger than the images, which are {size[0]}×{size[1]}; "
            "add --resize (in Python: resize=), or crop less"
        )
    top, left = (round((side - part) / 2) for side, part in zip(size, crop, strict=True))
    return top, left, *crop


class Prepared(Around):
    """A module, what stands before it, and what is taken from its answer."""

    def __init__(self, model: nn.Module, front: Front | None, output: Output) -> None:
        super().__init__()
        self.model = model
        self.front = front
        self.output = output
        self.training = model.training

    def forward(self, images: Images) -> Logits:
        """Prepare, ask and take the logits."""
        given = images if self.front is None else self.front(images)
        logits: Logits = self.output(self.model(given))
        return logits

    def outputs(self, images: Images) -> Logits:
        """All outputs of a model that has more than it shows."""
        given = images if self.front is None else self.front(images)
        found: Logits = self.output(all_outputs(self.model, given))
        return found


def normalised(model: nn.Module, how: Normalisation, channels: int) -> Prepared:
    """A module behind a normalisation that came with its weights."""
    like = next((one for one in model.parameters() if one.is_floating_point()), None)
    return Prepared(model, Front(Preparation(normalisation=how), (channels, 1, 1), like), Output())


def refuse_twice(model: Any, how: Preparation) -> None:
    """A model that normalises its images itself takes no other normalisation."""
    if how.normalisation is not None and isinstance(model, Classifier | Prepared):
        raise ClasswiseError(
            "this model normalises its images itself; leave the normalisation out, or it would be "
            "applied twice"
        )


def behind(model: LogitModel, front: Front | None, output: Output) -> LogitModel:
    """The model with what it wants: a module, a black box or a function, as it was."""
    if front is None and not output:
        return model
    if isinstance(model, nn.Module):
        return Prepared(model, front, output)
    if isinstance(model, BlackBox):
        asked = partial(_taken, model.function, output) if output else model.function
        return replace(model, function=asked, before=front)
    return partial(_asked, model, front, output)


def _taken(function: Any, output: Output, images: Any) -> Any:
    return output(function(images))


def _asked(function: Any, front: Front | None, output: Output, images: Images) -> Logits:
    logits: Logits = output(function(images if front is None else front(images)))
    return logits
